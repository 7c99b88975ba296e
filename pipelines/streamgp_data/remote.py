"""Checkpoints in an object store, by a directory here that mirrors them.

The newest checkpoint is one object, `checkpoint`: a zip archive of its files, and of the names of the run's other
files (scored forecasts, alarms), which are objects that never change. It is written on the condition
that it is the one that this process has read or written last (If-Match), or that there is none (If-None-Match), so that
of two writers one wins and the other stops. What is there counts: a checkpoint here that is not there is let go of.

Address and credentials are those of the environment (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ...), as for tables; they are
not written anywhere.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from streamgp.errors import CheckpointError, ServiceError, StateError, UsageError
from streamgp_data.disk import store_file

LOCK = ".lock"
"""The file that the process which trains in a directory has locked."""
OBJECT = "checkpoint"
SHARED = ("predictions/*.parquet", "alarms/*.parquet", "raised.json")
"""Files of a run that the next machine needs beside the checkpoint."""
_MARK = ".remote.json"
_UNANSWERED = re.compile(r"retry_timeout|error sending request")
_REFUSED = re.compile(
    r"\b(400 Bad Request|401 Unauthorized|403 Forbidden|404 Not Found)"
    r"|NoSuchBucket|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch"
)
_IDENTITY = re.compile(r"169\.254\.|fd00:ec2|metadata\.google|oauth2/")
"""Services that machines of a cloud ask for credentials."""
_URL = re.compile(r"(s3a?|gs|az|abfss?|adl):/+([^/]+/.+)")


def unanswered(error: BaseException) -> bool:
    """Whether a store was asked again and again, and gave no answer: it is away, and has refused nothing.

    Example:
        >>> unanswered(OSError("HTTP error: error sending request")), unanswered(OSError("403 Forbidden"))
        (True, False)
    """
    texts = list(_chain(error))
    return any(map(_UNANSWERED.search, texts)) and not any(map(_REFUSED.search, texts))


def without_credentials(error: BaseException) -> bool:
    """Whether what did not answer is no store, but where this machine would get credentials: none were given.

    Example:
        >>> without_credentials(OSError("PUT http://169.254.169.254/latest/api/token: error sending request"))
        True
    """
    return any(map(_IDENTITY.search, _chain(error)))


def _chain(error: BaseException) -> Iterator[str]:
    """What an error says, and what led to it."""
    seen: BaseException | None = error
    while seen is not None:
        yield str(seen)
        seen = seen.__cause__ or seen.__context__


def mirror(where: str | Path) -> Path:
    """The directory that mirrors a URL, in the user's cache; a path is what it is.

    Raises:
        UsageError: the URL holds credentials, or the library for object stores is not installed.

    Example:
        >>> mirror("runs/day-ahead")
        PosixPath('runs/day-ahead')
    """
    found = _URL.fullmatch(str(where))  # a Path has lost a slash
    if found is None:
        return Path(where)
    if "@" in found[2].partition("/")[0]:
        raise UsageError("a URL holds no credentials", hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    _library()
    url = f"{found[1]}://{found[2].rstrip('/')}"
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = cache / "streamgp" / hashlib.sha256(url.encode()).hexdigest()[:16]
    home.mkdir(parents=True, exist_ok=True)
    if not (home / _MARK).exists():
        _note(home, {"url": url, "tag": None, "name": "", "files": {}})
    return home / url.rpartition("/")[2]


def shown(directory: Path) -> str:
    """A directory as the user named it: the URL of a mirror."""
    mark = _read_mark(directory)
    return str(directory) if mark is None else str(mark["url"])


def refresh(directory: Path) -> None:
    """Bring a mirror up to date, unless a process here holds it: then it is. Other directories stay as they are.

    Raises:
        ServiceError: the store does not answer.
        CheckpointError: what is there is no checkpoint.
    """
    if _read_mark(directory) is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    with open(directory / LOCK, "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        pull(directory, files=False)


def pull(directory: Path, files: bool = True) -> None:
    """As `refresh`, by the process that holds the directory; `files`: also the run's other files.

    Raises:
        ServiceError, CheckpointError: as `refresh`.
    """
    mark = _read_mark(directory)
    if mark is None:
        return
    with _asking(mark["url"]) as (obstore, store):
        try:
            tag = obstore.head(store, OBJECT)["e_tag"]
        except FileNotFoundError:
            tag = None
        if tag is None:
            mark |= {"tag": None, "name": "", "files": {}}
        elif tag != mark["tag"] or not (directory / mark["name"] / "state.json").is_file():
            found = obstore.get(store, OBJECT)
            mark |= {"tag": found.meta["e_tag"], **_unpack(directory, bytes(found.bytes()), mark["url"])}
        _note(directory.parent, mark)
        for path in directory.glob("[0-9]*"):
            if path.is_dir() and path.name != mark["name"]:
                shutil.rmtree(path)
        if not files:
            return
        for path in _files(directory):
            if mark["files"].get(str(path.relative_to(directory))) != _key(directory, path):
                path.unlink()
        for name, key in mark["files"].items():
            path = directory / name
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                store_file(path, bytes(obstore.get(store, key).bytes()))


def push(directory: Path, name: str, folder: Path) -> None:
    """Write a checkpoint to the store of a mirror, before it is written here; nothing where it is none.

    Args:
        directory: the mirror.
        name: of the checkpoint's directory.
        folder: its files, here.

    Raises:
        StateError: another process has written there since this one read it.
        ServiceError: the store refused.
    """
    mark = _read_mark(directory)
    if mark is None:
        return
    there, files = set(mark["files"].values()), {}
    with _asking(mark["url"]) as (obstore, store):
        for path in _files(directory):
            key = files[str(path.relative_to(directory))] = _key(directory, path)
            if key not in there:
                obstore.put(store, key, path.read_bytes())
        whole = _packed(name, files, {path.name: path.read_bytes() for path in sorted(folder.iterdir())})
        mode: Any = "create" if mark["tag"] is None else {"e_tag": mark["tag"]}
        try:
            tag = obstore.put(store, OBJECT, whole, mode=mode, use_multipart=False)["e_tag"]
        except (
            obstore.exceptions.AlreadyExistsError,
            obstore.exceptions.PreconditionError,
            FileNotFoundError,
        ) as error:
            if mark["tag"] is None and isinstance(error, FileNotFoundError):  # there is no such bucket
                raise
            tag = _own(obstore, store, whole)  # the answer to the first try may have been lost
            if tag is None:
                raise StateError(
                    f"another process has written {mark['url']} since this one read it: only one can go on",
                    hint="what it has learned is there; run the same command again to go on from that",
                ) from None
        _note(directory.parent, {**mark, "tag": tag, "name": name, "files": files})
        gone = there - set(files.values())
        if gone:
            obstore.delete(store, sorted(gone))


def drop(directory: Path, keep: bool = False) -> None:
    """Let go of the checkpoint in the store of a mirror; `keep`: as `checkpoint.1`, `checkpoint.2`, ..."""
    mark = _read_mark(directory)
    if mark is None or mark["tag"] is None:
        return
    with _asking(mark["url"]) as (obstore, store):
        if keep:
            taken = {item["path"] for part in store.list() for item in part}
            number = next(n for n in range(1, len(taken) + 2) if f"{OBJECT}.{n}" not in taken)
            obstore.copy(store, OBJECT, f"{OBJECT}.{number}")
        obstore.delete(store, OBJECT)
    _note(directory.parent, {**mark, "tag": None, "name": "", "files": {}})


def _own(obstore: Any, store: Any, whole: bytes) -> str | None:
    """The tag of the object, where it holds these bytes."""
    try:
        found = obstore.get(store, OBJECT)
    except FileNotFoundError:
        return None
    return str(found.meta["e_tag"]) if bytes(found.bytes()) == whole else None


def _packed(name: str, files: Mapping[str, str], parts: Mapping[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        for part, data in {"mirror.json": json.dumps({"name": name, "files": files}).encode(), **parts}.items():
            archive.writestr(zipfile.ZipInfo(part), data)
    return whole.getvalue()


def _unpack(directory: Path, whole: bytes, url: str) -> dict[str, Any]:
    """Put the checkpoint of an object into a directory; returns `name` and `files`."""
    scratch = directory / f".tmp-{os.getpid()}"
    try:
        with zipfile.ZipFile(io.BytesIO(whole)) as archive:
            about = json.loads(archive.read("mirror.json"))
            parts = {part: archive.read(part) for part in archive.namelist() if part != "mirror.json"}
        name, files = str(about["name"]), dict(about["files"])
        if not re.fullmatch(r"\d+(-\d+)?", name) or any("/" in part or part.startswith(".") for part in parts):
            raise ValueError("a name in it is none of a checkpoint")
        if any(not any(Path(file).match(shared) for shared in SHARED) or ".." in file for file in files):
            raise ValueError("a file in it is none of a run")
    except (zipfile.BadZipFile, KeyError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{url} holds no checkpoint: {error}", hint="name another, or start with --fresh"
        ) from None
    scratch.mkdir(parents=True, exist_ok=True)
    for part, data in parts.items():
        store_file(scratch / part, data)
    shutil.rmtree(directory / name, ignore_errors=True)
    os.rename(scratch, directory / name)
    return {"name": name, "files": files}


def _files(directory: Path) -> Iterator[Path]:
    for pattern in SHARED:
        yield from sorted(directory.glob(pattern))


def _key(directory: Path, path: Path) -> str:
    """The name of a file's object: a part has the digest of its bytes in its own name."""
    name = path.relative_to(directory)
    if path.suffix == ".parquet":
        return str(name)
    return str(name.with_stem(f"{name.stem}-{hashlib.sha256(path.read_bytes()).hexdigest()[:32]}"))


def _read_mark(directory: Path) -> dict[str, Any] | None:
    try:
        mark: dict[str, Any] = json.loads((directory.parent / _MARK).read_bytes())
    except (OSError, ValueError):
        return None
    return mark if mark["url"].rpartition("/")[2] == directory.name else None


def _note(home: Path, mark: Mapping[str, Any]) -> None:
    scratch = home / f"{_MARK}.{os.getpid()}"
    store_file(scratch, json.dumps(mark).encode())
    os.replace(scratch, home / _MARK)


def _library() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError:
        raise UsageError(
            "checkpoints in an object store need the extra store", hint="pip install 'streamgp[store]'"
        ) from None
    return obstore


@contextmanager
def _asking(url: str) -> Iterator[tuple[Any, Any]]:
    """The library and the store; what the store says becomes a ServiceError, of one line."""
    obstore = _library()
    try:
        yield obstore, obstore.store.from_url(url)
    except (obstore.exceptions.BaseError, FileNotFoundError, PermissionError) as error:
        said = str(error).strip().partition("\n")[0]
        raise ServiceError(f"{url}: {said}", hint="are the address and the credentials right?") from None
