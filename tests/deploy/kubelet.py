"""Creates volumes with the kubelet's layout: files in a versioned folder, exposed by symlinks, replaced atomically."""

import os
import secrets
from collections.abc import Mapping
from pathlib import Path


def mount(folder: Path, files: Mapping[str, bytes], mode: int = 0o440) -> None:
    """Mount a ConfigMap or Secret; call it again to replace the files, as the kubelet does after a change.

    `mode` is the file mode after `fsGroup` is applied: a `defaultMode` of 0400 becomes 0440.
    A name with a slash is the path of an item.
    """
    folder.mkdir(parents=True, exist_ok=True)
    version = f"..2026_11_16_12_00_00.{secrets.randbelow(10**10):010}"
    for name, content in files.items():
        file = folder / version / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        file.chmod(mode)
    (folder / version).mkdir(exist_ok=True)
    data = folder / "..data"
    before = os.readlink(data) if data.is_symlink() else None
    (folder / "..data_tmp").symlink_to(version)
    (folder / "..data_tmp").rename(data)
    tops = {Path(name).parts[0] for name in files}
    for top in tops:
        if not (folder / top).is_symlink():
            (folder / top).symlink_to(f"..data/{top}")
    for link in folder.iterdir():
        if link.is_symlink() and not link.name.startswith("..") and link.name not in tops:
            link.unlink()
    if before is not None:
        _remove(folder / before)


def _remove(folder: Path) -> None:
    for below in sorted(folder.rglob("*"), reverse=True):
        below.rmdir() if below.is_dir() else below.unlink()
    folder.rmdir()
