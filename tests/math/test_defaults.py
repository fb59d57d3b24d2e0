"""What functions of ``math`` assume where a caller says nothing."""

import importlib
import inspect
import pkgutil

import pytest

import stemmatics.math

# bars of estimated bases are at 90%, as published; everything else is at 95%
DEFAULTS = {"level": {0.9, 0.95, None}, "power": {0.8}, "tolerance": {0.0, 0.01}}


def functions():
    for found in pkgutil.walk_packages(stemmatics.math.__path__, "stemmatics.math."):
        module = importlib.import_module(found.name)
        for name, value in vars(module).items():
            if inspect.isfunction(value) and value.__module__ == found.name:
                yield pytest.param(value, id=f"{found.name.removeprefix('stemmatics.math.')}.{name}")


@pytest.mark.parametrize("function", functions())
def test_levels_and_tolerances_are_those_of_the_documentation(function):
    for name, parameter in inspect.signature(function).parameters.items():
        if name in DEFAULTS and parameter.default is not inspect.Parameter.empty:
            assert parameter.default in DEFAULTS[name]
