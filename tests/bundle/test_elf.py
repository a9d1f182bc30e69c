import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bundle import elf
from bundle.errors import ElfError
from bundle.interpreter import Interpreter
from bundle.relink import relink


def mapped_library(pattern: str) -> bytes:
    """A library that this very process has loaded."""
    text = Path("/proc/self/maps").read_text()
    found = re.search(rf"/\S*/{pattern}", text)
    assert found is not None
    return Path(found.group()).read_bytes()


@pytest.fixture(scope="session")
def small_object(own_interpreter: Interpreter) -> bytes:
    modules = (own_interpreter.stdlib / "lib-dynload").glob("*.so")
    return min((path.read_bytes() for path in modules), key=len)


def test_a_library_tells_its_name_and_needs() -> None:
    libm = elf.parse(mapped_library(r"libm\.so\.6"))
    assert (libm.soname, libm.rpath, libm.runpath) == ("libm.so.6", None, None)
    assert "libc.so.6" in libm.needed


def test_a_program_tells_its_loader(own_interpreter: Interpreter) -> None:
    program = elf.parse(own_interpreter.executable.read_bytes())
    assert program.interpreter is not None
    assert Path(program.interpreter).exists()
    assert program.soname is None


def test_the_machine_is_the_one_that_runs_it(own_interpreter: Interpreter) -> None:
    names = {"x86_64": elf.Machine.AMD64, "aarch64": elf.Machine.ARM64}
    assert own_interpreter.machine == names[os.uname().machine]


@pytest.mark.parametrize(
    ("at", "value", "complaint"),
    [
        (4, 1, "64-bit"),
        (5, 2, "64-bit little-endian"),
        (18, 3, "neither x86-64 nor AArch64"),
        (54, 1, "program headers of"),
        (39, 1, "leaves the file"),
    ],
)
def test_another_kind_of_object_is_refused_by_name(
    small_object: bytes, at: int, value: int, complaint: str
) -> None:
    image = bytearray(small_object)
    image[at] = value
    with pytest.raises(ElfError, match=complaint):
        elf.parse(bytes(image))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=400).map(lambda tail: elf.MAGIC + b"\x02\x01\x01" + tail))
def test_arbitrary_bytes_end_in_the_typed_error(image: bytes) -> None:
    with pytest.raises(ElfError):
        elf.parse(image)


@pytest.mark.slow
@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_damaged_object_is_relinked_as_asked_or_refused(
    small_object: bytes, data: st.DataObject
) -> None:
    image = bytearray(small_object)
    sound = elf.parse(small_object)
    headers = st.integers(0, sound.header.phoff + len(sound.segments) * elf.PHDR.size - 1)
    table = st.integers(sound.table.offset, sound.table.offset + sound.table.size - 1)
    sections = st.integers(sound.header.shoff, len(small_object) - 1)
    for at in data.draw(st.lists(headers | table | sections, min_size=1, max_size=6)):
        image[at] = data.draw(st.integers(0, 255))
    end = data.draw(st.just(len(image)) | st.integers(0, len(image)))
    try:
        result = relink(bytes(image[:end]), "$ORIGIN/../lib")
    except ElfError:
        return
    changed = elf.parse(result)
    assert (changed.rpath, changed.runpath) == ("$ORIGIN/../lib", None)
