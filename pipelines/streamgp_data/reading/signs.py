"""What the first bytes of a file say about its format, whatever it is called."""

from __future__ import annotations

from streamgp.errors import DataError

_SIGNS: dict[bytes, tuple[str, str]] = {
    b"PAR1": ("a Parquet file", "parquet"),
    b"ARROW1": ("an Arrow file", "arrow"),
    b"\xff\xff\xff\xff": ("an Arrow stream", "arrow"),
    b"PK\x03\x04": ("a ZIP archive (or an Excel file)", "excel"),
    b"BZh": ("a bzip2 file", ""),
    b"\xfd7zXZ\x00": ("an xz file", ""),
    b"\x89HDF": ("an HDF5 file", "hdf5"),
    b"\x89MCAP": ("an MCAP recording", "mcap"),
    b"SQLite format 3": ("an SQLite database", ""),
    b"Obj\x01": ("an Avro file", ""),
    b"\x1f\x8b": ("a gzip file within another compressed file", ""),
    b"\x28\xb5\x2f\xfd": ("a zstd file within another compressed file", ""),
}
_TEXT = bytes(range(32, 127)) + b"\t\n\r"


def reject_other_formats(head: bytes, uri: str, name: str) -> None:
    """Refuse a binary file that is to be read as text of the format `name`.

    Raises:
        DataError: it names the real format, and how to read it.
    """
    for sign, (what, form) in _SIGNS.items():
        if head.startswith(sign) and head[len(sign) : 512].translate(None, _TEXT):
            hint = (
                f"say --format {form}, or rename it" if form else "unpack or convert it to CSV, Parquet or Arrow first"
            )
            raise DataError(f"{uri}: this is {what}, not {name}", hint=hint)
