"""What the tests of commands share with those of studies."""

from tests.study.conftest import made, no_still_pictures, study

__all__ = ["made", "no_still_pictures", "study"]
