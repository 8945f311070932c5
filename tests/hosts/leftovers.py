"""End of what a failed test has left open, at the end of that test: otherwise a later test fails because of it."""

from __future__ import annotations

import gc
import sys
import warnings
from collections.abc import Iterator

import pytest

__all__ = ["pytest_runtest_teardown"]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Iterator[None]:
    """Release the variables of a failed test. pytest keeps them until the next test, which would warn of open sockets."""
    try:
        return (yield)
    finally:
        if hasattr(sys, "last_value"):
            for name in ("last_type", "last_value", "last_traceback", "last_exc"):
                vars(sys).pop(name, None)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
