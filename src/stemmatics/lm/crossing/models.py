"""Earlier layers of one checkpoint under the late layers of another.

The model's own forward always runs; the output of a layer is replaced where a layer is cut out. So
masks, positions and what surrounds the layers are each architecture's own, and no architecture is
named here.

Parts of a hybrid: the embedding belongs to the model of the earlier state; layers ``k`` and up to the
model of the late stack; final norm and head to the model that reads out.

Axes: B rows, L positions of a row, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from stemmatics.core.errors import UserError
from stemmatics.lm.scoring.discover import call_arguments, replaced_forward

NUM_PROBE_TOKENS = 8
# A second run of the same layers may use another kernel; a larger error is another function.
IDENTITY_TOLERANCE = 1e-5
# Rounding steps that are allowed in half precision.
ROUNDING_STEPS = 4


class Uncrossable(UserError):  # noqa: N818 - a result, kept in the store
    """A pair or a model that can't be cut, because of its structure. ``reason`` names no file."""

    def __init__(self, what: str, why: str, fix: str, *, code: int = 1, reason: str = "") -> None:
        super().__init__(what, why, fix, code=code)
        self.reason = reason or f"{what}: {why}"


@dataclass(frozen=True, slots=True)
class States:
    """Hidden states and logits of one pass of a model.

    ``at[k]`` is the whole hidden sequence entering layer ``k`` (B x L x D), ``final`` what leaves
    the last layer, ``logits`` (B x V) the model's own at the chosen position of each row.
    """

    at: dict[int, Tensor]
    final: Tensor
    logits: Tensor


class Crossable:
    """A causal model whose stack of layers can be cut at every boundary; checked by the constructor.

    ``num_evaluations`` counts how often a layer was evaluated.

    Raises:
        Uncrossable: no list of layers that pass on one hidden sequence, or layers with other inputs
            than that sequence (per-layer embeddings, shared keys), so that a cut would miss them.
        UserError: logits that are not finite.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.num_evaluations = 0
        self._structures: list[Callable[[Tensor], Any]] = []
        num_ids = model.get_input_embeddings().weight.shape[0]
        ids_L = (torch.arange(NUM_PROBE_TOKENS, device=model.device) * 7919 + 1) % num_ids
        self.layers = self._find_layers(ids_L[None])
        self._check(ids_L[None], num_ids)

    @property
    def num_layers(self) -> int:
        """Layers of the stack; boundaries are 1 to one less."""
        return len(self.layers)

    @torch.inference_mode()
    def states(self, input_BL: Tensor, last_B: Tensor, boundaries: Collection[int]) -> States:
        """One pass over ``input_BL``, rows padded on the right, keeping the states at ``boundaries``.

        ``last_B`` is the position of each row whose logits are returned.
        """
        states: dict[int, Tensor] = {}
        rows_B = torch.arange(len(input_BL), device=input_BL.device)
        head = self.model.get_output_embeddings()
        head_forward = head.forward
        with ExitStack() as hooks:
            for number, layer in enumerate(self.layers):
                hooks.enter_context(self._counted(layer))
                if number in boundaries:
                    hooks.enter_context(_before(layer, partial(states.__setitem__, number)))
            final: list[Tensor] = []
            hooks.enter_context(_after(self.layers[-1], final.append))
            hooks.enter_context(
                replaced_forward(head, lambda hidden_BLD: head_forward(hidden_BLD[rows_B, last_B][:, None]))
            )
            logits_BV = self.model(input_BL, **call_arguments(self.model)).logits[:, 0]
        return States(states, final[-1], _at_least_float32(logits_BV))

    @torch.inference_mode()
    def run_late_layers(self, input_BL: Tensor, boundary: int, hidden_BLD: Tensor) -> Tensor:
        """What leaves the last layer when ``hidden_BLD`` enters layer ``boundary``.

        Late keys and values are computed from it; ``input_BL`` gives the shape only.
        """
        with ExitStack() as hooks:
            for layer, structure in zip(self.layers[:boundary], self._structures, strict=False):
                hooks.enter_context(
                    replaced_forward(layer, lambda *_, structure=structure, **__: structure(hidden_BLD))
                )
            for layer in self.layers[boundary:]:
                hooks.enter_context(self._counted(layer))
            final: list[Tensor] = []
            hooks.enter_context(_after(self.layers[-1], final.append))
            head = self.model.get_output_embeddings()
            hooks.enter_context(
                replaced_forward(head, lambda hidden: hidden.new_zeros((*hidden.shape[:-1], 1)))
            )
            self.model(input_BL, **call_arguments(self.model))
        return final[-1]

    @torch.inference_mode()
    def read_out(self, final_BLD: Tensor) -> Tensor:
        """Logits (B x L x V) of this model's final norm and head for what left a last layer."""
        input_BL = torch.zeros(final_BLD.shape[:2], dtype=torch.long, device=self.model.device)
        with ExitStack() as hooks:
            for layer, structure in zip(self.layers, self._structures, strict=True):
                hooks.enter_context(
                    replaced_forward(layer, lambda *_, structure=structure, **__: structure(final_BLD))
                )
            logits_BLV = self.model(input_BL, **call_arguments(self.model)).logits
        return _at_least_float32(logits_BLV)

    def _counted(self, layer: nn.Module) -> Any:
        def count(_: Tensor) -> None:
            self.num_evaluations += 1

        return _before(layer, count)

    def _find_layers(self, ids_1L: Tensor) -> list[nn.Module]:
        """The longest list of layers that are each called once, in order, on one hidden sequence."""
        lists = [
            module for module in self.model.modules() if isinstance(module, nn.ModuleList) and len(module) > 1
        ]
        num_layers = getattr(self.model.config.get_text_config(), "num_hidden_layers", None)
        for candidate in sorted(
            lists, key=lambda modules: (len(modules) == num_layers, len(modules)), reverse=True
        ):
            layers = list(candidate)
            called: list[int] = []
            structures: dict[int, Callable[[Tensor], Any]] = {}
            with ExitStack() as hooks, torch.inference_mode():
                for number, layer in enumerate(layers):
                    hooks.enter_context(_watching(layer, number, called, structures))
                self.model(ids_1L, **call_arguments(self.model))
            if called == list(range(len(layers))) and len(structures) == len(layers):
                self._structures = [structures[number] for number in called]
                return layers
        raise _uncrossable(self.model, "it has no list of layers that pass on one hidden sequence")

    @torch.inference_mode()
    def _check(self, ids_1L: Tensor, num_ids: int) -> None:
        """Cut anywhere, the model must reproduce itself; other input ids must not change its late layers."""
        logits_1LV = _at_least_float32(self.model(ids_1L, **call_arguments(self.model)).logits)
        if not bool(torch.isfinite(logits_1LV).all()):
            raise UserError(
                f"a logit of {type(self.model).__name__} is not finite",
                "a margin with it would be undefined",
                "Check the weights, or use `numerics: {dtype: float32}`",
            )
        last_1 = torch.tensor([ids_1L.shape[1] - 1], device=ids_1L.device)
        states = self.states(ids_1L, last_1, range(self.num_layers))
        others_1L = (ids_1L + 1) % num_ids
        limit = tolerance(self.model.dtype)
        for boundary in sorted({1, self.num_layers // 2, self.num_layers - 1}):
            for input_1L in (ids_1L, others_1L):
                final_1LD = self.run_late_layers(input_1L, boundary, states.at[boundary])
                if not relative_error(final_1LD, states.final) <= limit:
                    raise _uncrossable(
                        self.model,
                        f"its layers from {boundary} on have other inputs than the hidden sequence",
                    )
        pairs = (self.read_out(states.final), logits_1LV), (states.logits, logits_1LV[:, -1])
        if not all(relative_error(*pair) <= limit for pair in pairs):
            raise _uncrossable(self.model, "its logits do not follow from what leaves its last layer")
        self.num_evaluations = 0


def _at_least_float32(logits: Tensor) -> Tensor:
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def relative_error(actual: Tensor, expected: Tensor) -> float:
    """Largest difference as a share of the largest expected value, or of one if that is smaller."""
    largest = max(1.0, float(expected.float().abs().max()))
    return float((actual.float() - expected.float()).abs().max()) / largest


def tolerance(dtype: torch.dtype) -> float:
    """The ``relative_error`` that rounding explains between two runs of one function."""
    return max(IDENTITY_TOLERANCE, ROUNDING_STEPS * torch.finfo(dtype).eps)


def _uncrossable(model: Any, why: str) -> Uncrossable:
    return Uncrossable(
        f"the layers of {type(model).__name__} can't be crossed",
        why,
        "Leave its pairs out of the measure `depth`",
    )


def _hidden_of(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) and output else output


def _input_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if args else kwargs.get("hidden_states")


def _structure_of(output: Any) -> Callable[[Tensor], Any]:
    """How a layer packs its hidden sequence."""
    if not isinstance(output, tuple):
        return lambda hidden: hidden
    rest = (None,) * (len(output) - 1)
    return lambda hidden: (hidden, *rest)


@contextmanager
def _before(layer: nn.Module, observe: Callable[[Tensor], Any]) -> Iterator[None]:
    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        observe(_input_of(args, kwargs))

    handle = layer.register_forward_pre_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _after(layer: nn.Module, observe: Callable[[Tensor], Any]) -> Iterator[None]:
    handle = layer.register_forward_hook(lambda _module, _args, output: observe(_hidden_of(output)))
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def _watching(
    layer: nn.Module, number: int, called: list[int], structures: dict[int, Callable[[Tensor], Any]]
) -> Iterator[None]:
    """Records that a layer was called, and how it packs its output if it maps a sequence to one like it."""

    def hook(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        called.append(number)
        entering, leaving = _input_of(args, kwargs), _hidden_of(output)
        tensors = isinstance(entering, Tensor) and isinstance(leaving, Tensor)
        if tensors and entering.shape == leaving.shape and leaving.ndim == 3:
            structures[number] = _structure_of(output)

    handle = layer.register_forward_hook(hook, with_kwargs=True)
    try:
        yield
    finally:
        handle.remove()
