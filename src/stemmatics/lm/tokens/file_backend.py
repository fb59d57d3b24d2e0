"""The tokenizer of a `tokenizer.json`, where the class that transformers chose builds another one.

Some classes of transformers 5 (GPT2Tokenizer, Qwen2Tokenizer and others with a backend of their own) take
only vocabulary and merges from the file: its normaliser, pre-tokenizer and added tokens are replaced by those
of the class. The model was trained on what the file gives.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from stemmatics.core.errors import UserError

FILE, CONFIG = "tokenizer.json", "tokenizer_config.json"
FLAG = "tokenizer_class_differs"
# what decides the ids of a text
_PARTS = ("normalizer", "pre_tokenizer", "model", "added_tokens")
# settings of a tokenizer_config.json that replace one of the file, by the type of its normaliser
_BERT = {"do_lower_case": "lowercase", "strip_accents": "strip_accents"} | {
    "tokenize_chinese_chars": "handle_chinese_chars"
}
_SPECIAL = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_PROBES = (
    "Hello, world. It's 1234 and 56.78!",
    "hello HELLO Ünïcode naïve ﬁne ＡＢＣ e\u0301 ½",
    "two  spaces   three\n\n\nlines\r\n\ttab ",
    " def f(x):\n    return x**2 != 0xff_00",
    "你好，世界。 こんにちは 한국어 العربية ☕🙂",
    "don't we'll I'M they've <b>tags</b> a_b camelCase --- ...",
)


def load_tokenizer_of(folder: Path, load: Callable[[], Any]) -> tuple[Any, dict[str, str]]:
    """The tokenizer of a folder as its file defines it, whatever ``load`` (transformers' way) makes of it.

    Raises what ``load`` raises where there is no `tokenizer.json`.
    """
    try:
        tokenizer = load()
    except Exception as error:
        if not (folder / FILE).is_file():
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        flag = f"{FILE} is used as it is; transformers can't build the class that the config names ({reason})"
        return _generic(folder / FILE, folder), {FLAG: flag}
    return restored(tokenizer, folder)


def restored(tokenizer: Any, folder: Path) -> tuple[Any, dict[str, str]]:
    """The tokenizer as its file defines it, and a flag where transformers' class gives other ids.

    The explicit settings of `tokenizer_config.json` hold as in transformers 4: `add_prefix_space`, the
    letter case and accents of a BERT normaliser, BOS and EOS.

    Args:
        tokenizer: what `AutoTokenizer` returned; not changed.
        folder: where it was loaded from.

    Raises:
        UserError: the file can't be read by the installed tokenizers library.
    """
    path = folder / FILE
    is_remote = type(tokenizer).__module__.startswith("transformers_modules")
    if is_remote or not path.is_file() or getattr(tokenizer, "backend_tokenizer", None) is None:
        return tokenizer, {}
    if _is_the_file(tokenizer, folder):
        return tokenizer, {}
    from_file = _generic(path, folder)
    _keep_special_tokens(tokenizer, from_file)
    for name, value in _template_settings(from_file, _config(folder)).items():
        setattr(from_file, name, value)
    if _relevant(tokenizer) == _relevant(from_file) and _post_processor(tokenizer) == _post_processor(
        from_file
    ):
        return tokenizer, {}
    differing = _difference(tokenizer, from_file)
    if differing is None:
        return from_file, {}
    name = type(tokenizer).__name__
    return from_file, {
        FLAG: f"{FILE} is used as it is; transformers' {name} builds another tokenizer from it, and tools "
        f"that load it so (lm-evaluation-harness, for one) score other ids: {differing}"
    }


def _is_the_file(tokenizer: Any, folder: Path) -> bool:
    """Whether transformers loaded the file itself, with settings that change nothing."""
    from transformers import PreTrainedTokenizerFast

    spec, config = tokenizer.backend_tokenizer.to_str(), _config(folder)
    same_backend = json.loads(_with_settings(spec, config)) == json.loads(spec)
    return (
        type(tokenizer) is PreTrainedTokenizerFast
        and same_backend
        and not _template_settings(tokenizer, config)
    )


def _keep_special_tokens(tokenizer: Any, from_file: Any) -> None:
    """Special tokens that the class names and the settings do not, where the file has them."""
    known = from_file.get_vocab()
    for name in _SPECIAL:
        token = getattr(tokenizer, name, None)
        if getattr(from_file, name, None) is None and token is not None and str(token) in known:
            setattr(from_file, name, token)


def _generic(path: Path, folder: Path) -> Any:
    """The file in transformers' plain class, with the settings beside it."""
    from transformers import PreTrainedTokenizerFast

    config = _config(folder)
    try:
        generic = PreTrainedTokenizerFast.from_pretrained(folder, local_files_only=True)
        backend = Tokenizer.from_str(_with_settings(generic.backend_tokenizer.to_str(), config))
    except Exception as error:  # the Rust library raises Exception itself
        raise UserError(
            f"{path.name} can't be read",
            str(error).splitlines()[0],
            "It is damaged or from a newer tokenizers library: upgrade `tokenizers`, or get it again",
        ) from error
    generic._tokenizer = backend  # noqa: SLF001 - there is no public way to replace it
    return generic


def _template_settings(tokenizer: Any, config: Mapping[str, Any]) -> dict[str, bool]:
    """Whether BOS and EOS go around a text, where the config contradicts the file; else empty.

    Transformers 5 ignores these settings beside a `tokenizer.json`, transformers 4 applied them.
    """
    ids = _front(tokenizer)
    present = {
        "add_bos_token": tokenizer.bos_token_id is not None and ids[:1] == [tokenizer.bos_token_id],
        "add_eos_token": tokenizer.eos_token_id is not None and ids[-1:] == [tokenizer.eos_token_id],
    }
    tokens = {"add_bos_token": tokenizer.bos_token_id, "add_eos_token": tokenizer.eos_token_id}
    explicit = {name: config[name] for name in present if isinstance(config.get(name), bool)}
    settled = present | {name: value for name, value in explicit.items() if tokens[name] is not None}
    return settled if settled != present else {}


def _config(folder: Path) -> Mapping[str, Any]:
    path = folder / CONFIG
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def _with_settings(spec: str, config: Mapping[str, Any]) -> str:
    """A tokenizer's JSON with the explicit settings of its config."""
    parts = json.loads(spec)
    steps, normalizer = parts["pre_tokenizer"] or {}, parts["normalizer"] or {}
    if isinstance(config.get("add_prefix_space"), bool) and "add_prefix_space" in steps:
        steps["add_prefix_space"] = config["add_prefix_space"]
    if normalizer.get("type") == "BertNormalizer":
        normalizer |= {field: config[name] for name, field in _BERT.items() if name in config}
    return json.dumps(parts)


def _relevant(tokenizer: Any) -> dict[str, Any]:
    spec = json.loads(tokenizer.backend_tokenizer.to_str())
    return {name: spec[name] for name in _PARTS}


def _post_processor(tokenizer: Any) -> Any:
    return json.loads(tokenizer.backend_tokenizer.to_str())["post_processor"]


def _front(tokenizer: Any) -> Any:
    """What its template does with a text."""
    return tokenizer("a", add_special_tokens=True)["input_ids"]


def _difference(tokenizer: Any, from_file: Any) -> str | None:
    """The first probe text with other ids, else a part that differs; None where nothing that counts does."""
    try:
        return _first_difference(tokenizer, from_file)
    except Exception as error:  # noqa: BLE001 - the Rust library raises Exception itself
        return f"the class fails ({str(error).splitlines()[0]})"


def _first_difference(tokenizer: Any, from_file: Any) -> str | None:
    added = [token["content"] for token in _relevant(from_file)["added_tokens"] if not token["special"]]
    for text in (*_PROBES, *(f"a {token}b {token}" for token in added)):
        theirs, ours = (
            t(text, add_special_tokens=False, verbose=False)["input_ids"] for t in (tokenizer, from_file)
        )
        if theirs != ours:
            return f"{text!r} is {len(ours)} tokens by the file and {len(theirs)} by the class"
    if _front(tokenizer) != _front(from_file):
        by_file, by_class = _front(from_file), _front(tokenizer)
        return f"the text 'a' with its template is {by_file} by the file, {by_class} by the class"
    mine, other = _relevant(from_file), _relevant(tokenizer)
    parts = [name for name in ("normalizer", "pre_tokenizer") if mine[name] != other[name]]
    return f"its {' and '.join(parts)} differ" if parts else None
