"""What the tests of commands share with those of studies."""

from tests.study.conftest import made, study

__all__ = ["made", "study"]
