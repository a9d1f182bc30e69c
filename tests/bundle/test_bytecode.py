import io
import marshal
import subprocess
import tarfile
from pathlib import Path
from types import CodeType

import pytest

from bundle import bytecode, sources
from bundle.errors import BytecodeError
from bundle.interpreter import Interpreter
from bundle.sources import SOURCES
from bundle.tree import Entry

MODULES = {
    "lib/alpha.py": b'names = {"a", "b", "c"} | {"d"}\ndef f(x): return x in {"os", "sys", "re"}\n',
    "lib/beta.py": b"import os, sys, re, json\nclass A:\n    def os(self): return os.path\n",
    "lib/gamma.py": b"def f(*, a=1, b=(2, 3)): return [a, b, 'long constant with spaces']\n",
}


@pytest.mark.slow
def test_bytes_do_not_depend_on_what_else_is_compiled(own_interpreter: Interpreter) -> None:
    together = bytecode.compile_sources(MODULES, own_interpreter).modules
    for name, source in MODULES.items():
        alone = bytecode.compile_sources({name: source}, own_interpreter).modules
        assert alone == {name: together[name]}


def test_a_module_knows_itself_by_its_name_in_the_release(own_interpreter: Interpreter) -> None:
    pyc = bytecode.compile_sources({"lib/x/y.py": b"a = 1\n"}, own_interpreter).modules[
        "lib/x/y.py"
    ]
    code = marshal.loads(pyc[16:])
    assert isinstance(code, CodeType)
    assert code.co_filename == "lib/x/y.py"


def test_the_bytecode_runs_in_the_place_of_its_source(
    own_interpreter: Interpreter, tmp_path: Path
) -> None:
    source = b"def fail(): raise ValueError('compiled')\n"
    tree = bytecode.compile_tree({"lib/mod.py": Entry(content=source)}, own_interpreter)
    assert set(tree) == {"lib/mod.pyc", SOURCES}
    (tmp_path / "mod.pyc").write_bytes(tree["lib/mod.pyc"].content)
    query = "import sys; sys.path.append(sys.argv[1]); import mod; print(mod.__file__); mod.fail()"
    done = subprocess.run(
        [own_interpreter.executable, "-I", "-S", "-c", query, tmp_path],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == f"{tmp_path}/mod.pyc\n"
    assert 'File "lib/mod.py", line 1, in fail' in done.stderr
    assert done.stderr.endswith("ValueError: compiled\n")


def test_the_sources_can_be_read_from_the_release(own_interpreter: Interpreter) -> None:
    tree = {name: Entry(content=body) for name, body in MODULES.items()}
    compiled = bytecode.compile_tree(tree, own_interpreter)
    assert sources.unpack(compiled) == MODULES
    with tarfile.open(fileobj=io.BytesIO(compiled[SOURCES].content)) as archive:
        assert archive.getnames() == sorted(MODULES)


def test_a_module_that_does_not_compile_stops_the_build_by_name(
    own_interpreter: Interpreter,
) -> None:
    tree = {"lib/bad.py": Entry(content=b"def :\n"), "lib/good.py": Entry(content=b"")}
    with pytest.raises(BytecodeError, match=r"lib/bad\.py does not compile: invalid syntax"):
        bytecode.compile_tree(tree, own_interpreter)
