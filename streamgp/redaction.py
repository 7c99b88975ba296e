"""What may be shown of a URL: never who logs in, nor what a parameter keeps secret."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote

HIDDEN = "***"

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://?)([^\s'\"<>`]+)")
_PARAMETER = re.compile(
    r"([?&;][^=&;?#\s]*(?:pass|pwd|secret|token|credential|signature|key|auth|odbc_connect)[^=&;?#\s]*=|[?&;]sig=)"
    r"[^&;#\s'\"]+",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """A text without the user, password and secret parameters of the URLs in it.

    Example:
        >>> redacted("postgresql://me:hunter2@db:5432/runs?sslmode=require&password=x does not answer")
        'postgresql://***@db:5432/runs?sslmode=require&password=*** does not answer'
        >>> redacted("http://127.0.0.1:5000/#/models/a and models:/a@champion and s3://bucket/a@b")
        'http://127.0.0.1:5000/#/models/a and models:/a@champion and s3://bucket/a@b'
    """
    return _URL.sub(_without_user, text) if ":/" in text else text


def _without_user(found: re.Match[str]) -> str:
    scheme, rest = found[1], found[2]
    authority = re.split("[/?#]", rest, maxsplit=1)[0]
    if scheme.endswith("//") and (
        "@" in authority or ("@" in rest and ":" in authority)
    ):  # / # ? of a password as well
        rest = f"{HIDDEN}@{rest.rpartition('@')[2]}"
    return scheme + _PARAMETER.sub(rf"\1{HIDDEN}", rest)


def without_user(url: str) -> str:
    """A URL without user and password, to be opened.

    Example:
        >>> without_user("https://me:hunter2@mlflow:5000/runs")
        'https://mlflow:5000/runs'
    """
    return redacted(url).replace(f"://{HIDDEN}@", "://", 1)


def reason(error: BaseException, *urls: str) -> str:
    """The first line of what a library says of an error; its kind alone, where that would tell a secret of `urls`.

    Example:
        >>> reason(ValueError("invalid literal for int() with base 10: 'hunter2'"), "mysql://me:hunter2@db/runs")
        'ValueError'
    """
    said = str(error).strip() or type(error).__name__
    for url in urls:
        said = said.replace(url, redacted(url))
    line = redacted(said).splitlines()[0][:300]
    return type(error).__name__ if any(secret in line for url in urls for secret in _secrets(url)) else line


def _secrets(url: str) -> set[str]:
    """What a URL keeps secret, as it stands there and as it is sent; not what is too short to be looked for."""
    user = url.partition("://")[2].rpartition("@")[0]
    found = {user, *user.split("/"), user.partition(":")[2] or user, *user.partition(":")[2].split("/")}
    if _PARAMETER.search(url):
        query = url.partition("?")[2]
        found |= {value for name, value in parse_qsl(query) if _PARAMETER.search(f"?{name}=x")}
    return {text for secret in found for text in (secret, unquote(secret)) if len(text) > 2}
