"""Files of hyper-parameters that `streamgp tune` writes and `streamgp train --init` takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from streamgp.base import Json
from streamgp.errors import DataError, ServiceError
from streamgp.evidence.initial import Initial
from streamgp.evidence.initial_file import document, from_document
from streamgp_data.presence import check_file
from streamgp_pipelines.files import replaced


def read(path: Path) -> Initial:
    """The hyper-parameters in a file.

    Raises:
        UsageError: there is no such file.
        DataError: it holds something else, or is damaged.
        ServiceError: it cannot be read.
    """
    check_file(path, "--init")
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{path} is no JSON", hint="give a file that streamgp tune has written") from None
    except OSError as error:
        raise ServiceError(f"{path} cannot be read: {error.strerror}", hint="may you read it?") from None
    try:
        found = json.loads(text)
    except ValueError:
        hint = "the file is cut off or no JSON; write it again with streamgp tune"
        raise DataError(f"{path} is no JSON", hint=hint) from None
    return from_document(found, str(path))


def write(path: Path, initial: Initial, readable: Mapping[str, Json]) -> None:
    """Write hyper-parameters to a file, whole or not at all.

    Args:
        path: of the file; one that is there is replaced.
        initial: the hyper-parameters.
        readable: what a person reads in it.

    Raises:
        ServiceError: it cannot be written.

    Example:
        >>> import tempfile
        >>> from streamgp.base import Shape
        >>> from streamgp.evidence.initial import example
        >>> shape = Shape(targets=("y",), horizon=1, lags=0, past=("y", "u"), future=("u",))
        >>> file = Path(tempfile.mkdtemp()) / "tuned.json"
        >>> write(file, example(shape), {})
        >>> read(file).noise.tolist(), digest(read(file)) == digest(example(shape))
        ([0.1], True)
    """
    text = json.dumps(document(initial, readable), indent=1, allow_nan=False)
    with replaced(path) as temporary:
        temporary.write_text(text + "\n", encoding="utf-8")


def digest(initial: Initial) -> str:
    """A digest of hyper-parameters, the same whatever file they are in and however they were found."""
    kept = {key: value for key, value in document(initial).items() if key not in ("streamgp", "found", "readable")}
    return hashlib.sha256(json.dumps(kept, sort_keys=True).encode()).hexdigest()[:12]
