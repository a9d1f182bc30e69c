import marshal
import subprocess
from pathlib import Path
from types import CodeType

import pytest

from bundle import bytecode
from bundle.errors import BytecodeError
from bundle.interpreter import Interpreter
from bundle.tree import Entry

SOURCES = {
    "lib/alpha.py": b'names = {"a", "b", "c"} | {"d"}\ndef f(x): return x in {"os", "sys", "re"}\n',
    "lib/beta.py": b"import os, sys, re, json\nclass A:\n    def os(self): return os.path\n",
    "lib/gamma.py": b"def f(*, a=1, b=(2, 3)): return [a, b, 'long constant with spaces']\n",
}


@pytest.mark.slow
def test_bytes_do_not_depend_on_what_else_is_compiled(own_interpreter: Interpreter) -> None:
    together = bytecode.compile_sources(SOURCES, own_interpreter).modules
    for name, source in SOURCES.items():
        alone = bytecode.compile_sources({name: source}, own_interpreter).modules
        assert alone == {name: together[name]}


def test_a_module_knows_itself_by_its_name_in_the_release(own_interpreter: Interpreter) -> None:
    pyc = bytecode.compile_sources({"lib/x/y.py": b"a = 1\n"}, own_interpreter).modules[
        "lib/x/y.py"
    ]
    code = marshal.loads(pyc[16:])
    assert isinstance(code, CodeType)
    assert code.co_filename == "lib/x/y.py"


def test_bytecode_is_used_whatever_became_of_the_source(
    own_interpreter: Interpreter, tmp_path: Path
) -> None:
    tree = bytecode.add_bytecode({"mod.py": Entry(content=b"print('compiled')\n")}, own_interpreter)
    for name, entry in tree.items():
        path = tmp_path / name.lstrip("/")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(entry.content)
    (tmp_path / "mod.py").write_text("print('source')\n")
    query = "import sys; sys.path.append(sys.argv[1]); import mod; print(mod.__cached__)"
    done = subprocess.run(
        [own_interpreter.executable, "-I", "-S", "-c", query, tmp_path],
        capture_output=True,
        text=True,
        check=True,
    )
    cached = tmp_path / "__pycache__" / f"mod.{own_interpreter.cache_tag}.pyc"
    assert done.stdout.splitlines() == ["compiled", str(cached)]


def test_a_module_that_does_not_compile_stops_the_build_by_name(
    own_interpreter: Interpreter,
) -> None:
    tree = {"lib/bad.py": Entry(content=b"def :\n"), "lib/good.py": Entry(content=b"")}
    with pytest.raises(BytecodeError, match=r"lib/bad\.py does not compile: invalid syntax"):
        bytecode.add_bytecode(tree, own_interpreter)
