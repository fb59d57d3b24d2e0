"""Document ids: a hash of the text, keyed where the text is private."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

import platformdirs

from stemmatics.core.errors import UserError


def document_key(path: Path | None = None) -> bytes:
    """The key of private document ids: 32 random bytes, created once and readable by its owner only.

    It is stored in the user's configuration folder, never in a run.

    Raises:
        UserError: the file is readable by others, or too short to be a key.
    """
    path = path or Path(platformdirs.user_config_dir("stemmatics")) / "document_ids.key"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if path.stat().st_mode & 0o077:
            raise UserError(
                f"{path} can be read by others",
                "it is the key of your private document ids",
                f"run chmod 600 {path}",
            ) from None
        key = path.read_bytes()
        if len(key) < 32:
            raise UserError(
                f"{path} is not a key", f"it has {len(key)} bytes of 32", "remove it; a new one is created"
            ) from None
        return key
    key = secrets.token_bytes(32)
    with os.fdopen(descriptor, "wb") as file:
        file.write(key)
    return key


def document_id(text: str, key: bytes | None = None) -> str:
    """32 hex digits: SHA-256 of the text's UTF-8 bytes, or HMAC-SHA-256 under ``key``."""
    raw = text.encode()
    digest = hashlib.sha256(raw) if key is None else hmac.new(key, raw, hashlib.sha256)
    return digest.hexdigest()[:32]
