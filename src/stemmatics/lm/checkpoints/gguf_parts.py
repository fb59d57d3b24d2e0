"""A GGUF in parts: `NAME-00001-of-0000N.gguf`, joined before transformers, which reads one file, gets it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stemmatics.core.errors import UserError

JOINED = "joined.gguf"
_PART = re.compile(r"-(\d{5})-of-(\d{5})(\.gguf)$", re.IGNORECASE)
# the writer's own, and what only a part needs
_LEFT_OUT = ("GGUF.", "split.", "general.architecture")


def parts_of(path: Path) -> list[Path]:
    """All parts of a GGUF in order, the file alone if it is whole. Raises UserError for a missing part."""
    matched = _PART.search(path.name)
    if matched is None:
        return [path]
    stem, count = path.name[: matched.start()], int(matched[2])
    parts = [
        path.with_name(f"{stem}-{number:05}-of-{count:05}{matched[3]}") for number in range(1, count + 1)
    ]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise UserError(
            f"{path} lacks {', '.join(missing[:3])}",
            f"it is a GGUF in {count} parts, and {len(parts) - len(missing)} of them are in the folder",
            "Download the missing parts into the same folder",
        )
    return parts


def join(parts: Sequence[Path], out: Path) -> None:
    """Write one GGUF with the metadata of the first part and the tensors of all, as they are stored."""
    from gguf import GGUFReader, GGUFWriter

    readers = [GGUFReader(part) for part in parts]
    fields = readers[0].fields
    writer = GGUFWriter(out, str(fields["general.architecture"].contents()), endianess=readers[0].endianess)
    for name, field in fields.items():
        if not name.startswith(_LEFT_OUT):
            kind = field.types[0]
            inner = field.types[-1] if len(field.types) > 1 else None
            writer.add_key_value(name, field.contents(), kind, sub_type=inner)
    tensors: list[Any] = [tensor for reader in readers for tensor in reader.tensors]
    for tensor in tensors:
        data = tensor.data
        writer.add_tensor_info(tensor.name, data.shape, data.dtype, data.nbytes, tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for tensor in tensors:
        writer.write_tensor_data(tensor.data, tensor_endianess=readers[0].endianess)
    writer.close()
