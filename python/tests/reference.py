"""The reference of the package, made from its sources: `python -m tests.reference` writes it.

Sources are read and not imported, so that the page is the same whichever extras are installed.
"""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
SOURCES = REPOSITORY / "python/src"
PAGE = REPOSITORY / "docs/python.md"

OPENING = """\
# The Python package

Every public name, from the docstrings of the package; its examples are run by CI. How to install it and what it is for:
[python/README.md](../python/README.md). Two notebooks: [a first federation](../python/notebooks/first-federation.ipynb)
and [your own data, compared](../python/notebooks/own-data.ipynb). `python -m tests.reference` in `python/` writes it.
"""

NAMES = {
    "fedeq": [
        *("run", "resume", "Run", "open", "compare", "Comparison", "sweep", "Sweep", "reproduce", "Reproduction"),
        *("Table", "Figure", "Callback", "Round", "FedeqError", "Refused", "Stopped"),
    ],
    "fedeq.data": ["save", "FederationData", "ClientData", "Pair"],
    "fedeq.client": ["Models", "Client"],
    "fedeq.networks": ["Network", "TorchNetwork", "Arrays", "Inputs", "Targets"],
    "fedeq.torch": ["load", "create", "Network", "SolveReport"],
    "fedeq.onnx": ["export"],
    "fedeq.flower": [],
}
"""All that is public, by module."""

MADE_BY_HAND = {"Run", "Table", "Models", "TorchNetwork"}
"""Classes whose objects people make themselves; those of all others are given to them."""

PAGES = {
    "fedeq.data": "own-data.md",
    "fedeq.networks": "own-network.md",
    "fedeq.torch": "pytorch.md",
    "fedeq.onnx": "pytorch.md",
    "fedeq.flower": "deploy.md",
}
"""The page that tells more about a module."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def page() -> str:
    """Write the whole page."""
    return "\n".join([OPENING, *(part for module in NAMES for part in section(module))])


def section(module: str) -> list[str]:
    """Describe a module and its names."""
    more = f"\nMore: [docs/{PAGES[module]}]({PAGES[module]}).\n" if module in PAGES else ""
    about = text(ast.get_docstring(parsed(module)) or "") if module != "fedeq" else ""
    heading = "\n".join(part for part in (f"## `{module}`\n", about, more.lstrip()) if part)
    return [heading, *(entry(module, name) for name in NAMES[module])]


@cache
def parsed(module: str) -> ast.Module:
    """Read the source of a module; of the Rust one, its stub."""
    place = SOURCES.joinpath(*module.split("."))
    files = [place / "__init__.py", place.with_suffix(".py"), place.with_suffix(".pyi")]
    return ast.parse(next(file for file in files if file.exists()).read_text())


def entry(module: str, name: str) -> str:
    """Describe a name, wherever it is defined."""
    where, place = defined(module, name)
    found, documented = parsed(where).body[place], docstring(where, place)
    heading = f"### `{module}.{name}`\n"
    if isinstance(found, Function):
        return f"{heading}\n`{signature(name, found)}`\n\n{documented}"
    if isinstance(found, ast.ClassDef):
        made = [f"`{signature(name, init)}`\n\n" for init in methods(found) if init.name == "__init__"]
        made = made if name in MADE_BY_HAND else []
        lines = [line for member in members(found) if (line := described(*member))]
        return f"{heading}\n{''.join(made)}{documented}" + ("\n" + "\n".join(lines) + "\n" if lines else "")
    value = found.value if isinstance(found, ast.Assign | ast.AnnAssign) else None
    assert value is not None, name
    return f"{heading}\n`{ast.unparse(value)}`\n\n{documented}".rstrip() + "\n"


def defined(module: str, name: str) -> tuple[str, int]:
    """Find where a name is defined: the module, and its place among the statements."""
    for place, statement in enumerate(parsed(module).body):
        if isinstance(statement, ast.ImportFrom):
            for given in statement.names:
                if (given.asname or given.name) == name:
                    below = f"{statement.module}.{given.name}"
                    return (below, 0) if statement.module is None else defined(statement.module, given.name)
        elif name in names(statement):
            return module, place
    message = f"`{module}` has no `{name}`"
    raise LookupError(message)


def names(statement: ast.stmt) -> set[str]:
    """Give the names that a statement defines."""
    if isinstance(statement, Function | ast.ClassDef):
        return {statement.name}
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    return {target.id for target in targets if isinstance(target, ast.Name)}


def docstring(module: str, place: int) -> str:
    """Give what is written about a definition: in it, or below a value."""
    body = parsed(module).body
    found = body[place]
    if isinstance(found, Function | ast.ClassDef):
        return text(ast.get_docstring(found) or "")
    below = body[place + 1] if place + 1 < len(body) else None
    if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
        return text(below.value.value)
    return ""


def methods(found: ast.ClassDef) -> list[Function]:
    """Give the functions of a class."""
    return [member for member in found.body if isinstance(member, Function)]


def members(found: ast.ClassDef) -> list[tuple[Function | ast.AnnAssign, str]]:
    """Give the functions and fields of a class, with what is written about them."""
    kept: list[tuple[Function | ast.AnnAssign, str]] = []
    for member, below in zip(found.body, [*found.body[1:], None], strict=True):
        if isinstance(member, Function):
            kept.append((member, ast.get_docstring(member) or ""))
        elif isinstance(member, ast.AnnAssign):
            value = below.value if isinstance(below, ast.Expr) else None
            kept.append((member, str(value.value) if isinstance(value, ast.Constant) else ""))
    return kept


def attributes(found: ast.ClassDef) -> set[str]:
    """Give the names of what functions of a class keep in an object, but for private ones."""
    stored = {node for node in ast.walk(found) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    return {
        node.attr
        for node in stored
        if isinstance(node.value, ast.Name) and node.value.id == "self" and not node.attr.startswith("_")
    }


def described(member: Function | ast.AnnAssign, written: str) -> str | None:
    """Describe a member of a class in a line; one that is overloaded, or that people do not call, in none."""
    if isinstance(member, ast.AnnAssign):
        name, is_call = ast.unparse(member.target), False
    else:
        given = {ast.unparse(decorator) for decorator in member.decorator_list}
        name, is_call = member.name, "property" not in given
        if "overload" in given:
            return None
    if name == "__getitem__" and isinstance(member, Function):
        return f"- `[{member.args.args[1].arg}]`: {prose(written)}"
    if name.startswith("_"):
        return None
    shown = signature(name, member) if is_call and isinstance(member, Function) else name
    return f"- `.{shown}`: {prose(written)}"


def signature(name: str, function: Function) -> str:
    """Give the names and defaults of a function; the types are in the editor."""
    given = function.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, *filter(None, [given.vararg])):
        argument.annotation = None
    given.kwarg = None  # There to refuse names by ours.
    given.args = [argument for argument in given.args if argument.arg not in {"self", "cls"}]
    return f"{name}({ast.unparse(given)})"


def prose(written: str) -> str:
    """Give a docstring's text in one line, without its examples."""
    return " ".join(inspect.cleandoc(written).split(">>>")[0].split())


def text(written: str) -> str:
    """Give a docstring, its examples as blocks and its arguments as a list."""
    blocks = re.split(r"\n\n+", inspect.cleandoc(written))
    return "\n".join(block for part in blocks if (block := shown(part.strip("\n"))))


def shown(block: str) -> str:
    """Show a paragraph: an example, a program, a list of arguments or prose."""
    if block.startswith(">>> "):
        return f"```pycon\n{block}\n```\n"
    if block.startswith("    "):
        return f"```python\n{inspect.cleandoc(block)}\n```\n"
    if block.startswith("Args:\n"):
        return "".join(f"- `{name}`: {about}\n" for name, about in re.findall(r"(?m)^ +(\w+): (.*)$", block))
    return f"{block}\n" if block else ""


if __name__ == "__main__":
    PAGE.write_text(page())
