"""Packages that parts of this one need, and that need not be there."""


def not_installed(package: str, extra: str) -> str:
    """Say that one is missing, and how to install it."""
    hint = f"install the extra `{extra}`, in the root of a checkout: `pip install '.[{extra}]'`"
    return f"`{package}` is not installed\nhint: {hint}"
