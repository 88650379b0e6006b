"""A small sample product and a sample site as git repositories, for the demo and the tests."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

OWNER: Final = "aspose-3d"
PRODUCT_NAME: Final = "Aspose.3D-for-Python"
PRODUCT_URL: Final = f"https://github.com/{OWNER}/{PRODUCT_NAME}"

PRODUCT: Final[Mapping[str, str]] = {
    "README.md": """\
# Aspose.3D for Python

Aspose.3D for Python is a small library that reads, changes and writes 3D scenes.

## Features

- Reads OBJ and STL files.
- Writes OBJ and GLTF files.
- Moves, scales and turns meshes.
- Needs no other program.

## Requirements

- Runs on Python 3.9 and later.

## Installation

```bash
pip install aspose-3d-foss
```

## Quick start

```python
from aspose_3d import Scene

scene = Scene.load("cube.obj")
scene.scale(2.0)
scene.save("cube.gltf")
```

## Limitations

- Animations are not read.
""",
    "pyproject.toml": """\
[project]
name = "aspose-3d-foss"
version = "1.2.0"
license = "MIT"
requires-python = ">=3.9"
""",
    "LICENSE": "MIT License\n",
    "src/aspose_3d/__init__.py": """\
class Scene:
    \"\"\"A tree of nodes.\"\"\"

    @classmethod
    def load(cls, path):
        return cls()

    def scale(self, factor):
        return self

    def save(self, path):
        return None


class Mesh:
    \"\"\"Vertices and faces.\"\"\"


def convert(source, target):
    Scene.load(source).save(target)


def _hidden():
    return None
""",
    "examples/convert_scene.py": """\
from aspose_3d import convert

convert("cube.obj", "cube.stl")
""",
}

SITE: Final[Mapping[str, str]] = {
    "hugo.toml": """\
baseURL = "https://example.org/"
languageCode = "en"
title = "Products"
disableKinds = ["taxonomy", "term", "rss", "sitemap"]
""",
    "content/_index.md": "---\ntitle: Home\n---\n",
    "content/docs.aspose.org/_index.md": "---\ntitle: Documentation\ndescription: All documents\n---\n",
    "README.md": "The site.\n",
}


def create_repository(folder: Path, files: Mapping[str, str]) -> str:
    """Create a git repository with one commit of these files and return the commit id."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    _git(folder, "init", "--quiet", "--initial-branch=main")
    _git(folder, "add", "--all")
    _git(folder, "commit", "--quiet", "--message", "The beginning")
    return _git(folder, "rev-parse", "HEAD")


def create_repositories(folder: Path) -> tuple[Path, Path]:
    """Create the product at `OWNER/PRODUCT_NAME` below `folder` and the site at `site`. Returns both paths."""
    product, site = folder / OWNER / PRODUCT_NAME, folder / "site"
    create_repository(product, PRODUCT)
    create_repository(site, SITE)
    return product, site


def _git(folder: Path, *arguments: str) -> str:
    identity = {f"GIT_{role}_{field}": "sample" for role in ("AUTHOR", "COMMITTER") for field in ("NAME", "EMAIL")}
    # Fixed dates: the same files always produce the same commit id.
    dates = {f"GIT_{role}_DATE": "2026-01-01T00:00:00Z" for role in ("AUTHOR", "COMMITTER")}
    environment = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "PATH": os.environ["PATH"]}
    completed = subprocess.run(  # noqa: S603
        ["git", *arguments],  # noqa: S607
        cwd=folder,
        env={**environment, **identity, **dates},
        capture_output=True,
        check=True,
    )
    return completed.stdout.decode().strip()
