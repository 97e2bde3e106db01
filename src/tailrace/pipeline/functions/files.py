"""Files: load a user's function by its reference, `file:path.py:name`."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
import traceback
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tailrace.errors import BadInput, BadSetting


def is_reference(text: Any) -> bool:
    """Whether this is a reference to a function in a file."""
    return isinstance(text, str) and text.startswith("file:")


def function_at(reference: str, folder: Path | None = None) -> Any:
    """Load the function that `file:path.py:name` names; a relative path starts in `folder` or the working folder."""
    path, _, name = reference.removeprefix("file:").rpartition(":")
    if not path or not name:
        raise BadSetting(f"{reference!r} does not name a function; write file:path.py:name")
    module = run_file((folder or Path()) / path)
    if not hasattr(module, name):
        known = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
        raise BadSetting.unknown(path, name, known)
    return getattr(module, name)


class _Loader(SourceFileLoader):
    """Compiles a file's text each time, and writes no `__pycache__`."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)


def run_file(path: Path) -> ModuleType:
    """Run a Python file, and return it as a module; `BadInput` with the line if it fails.

    No process can import the module, so its functions are pickled to Spark's tasks with their code, not by name."""
    if not path.is_file():
        raise BadInput(f"there is no file {path}")
    name = f"tailrace_file_{path.stem}_{hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:8]}"
    spec = importlib.util.spec_from_file_location(name, path, loader=_Loader(name, str(path.absolute())))
    if spec is None or spec.loader is None:
        raise BadInput(f"{path} is not a Python file; its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # the dataclass decorator looks its module up
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise BadInput(f"{path}, line {error.lineno}: {error.msg}") from error
    except (Exception, SystemExit) as error:  # sys.exit() in the file must not end the command that runs it
        raise BadInput(f"{path}, line {_line(path, error)}: {type(error).__name__}: {error}") from error
    finally:
        sys.modules.pop(name, None)
    return module


def _line(path: Path, error: BaseException) -> int | None:
    """The innermost line of this file in the error's traceback."""
    lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if Path(f.filename) == path.absolute()]
    return lines[-1] if lines else None
