"""Counts the public surface of a package with its language's own tool, as a set of qualified names."""

import json
import re
import sys
from pathlib import Path

from tests.backends.launch.corpus.packages import Package, run
from tests.peers import npm

TYPESCRIPT = ("typescript", "5.6.3")
HERE = Path(__file__).parent


def public_names(package: Package, sources: Path, scratch: Path, entry: str) -> set[str]:
    """Return the public names of the package. `entry` is the entry file of an npm package."""
    scratch.mkdir(parents=True, exist_ok=True)
    if package.platform == "python":
        target = scratch / "installed"
        spec = f"{package.name}=={package.version}"
        run(sys.executable, "-m", "pip", "install", "-q", "--target", str(target), spec, cwd=scratch)
        module = package.module or package.name
        return set(
            json.loads(run(sys.executable, "-I", str(HERE / "count_python.py"), str(target), module, cwd=scratch))
        )
    if package.platform in ("typescript", "javascript"):
        compiler = npm.install_package(TYPESCRIPT) / "node_modules" / "typescript"
        text = run(
            "node", str(HERE / "count_typescript.cjs"), str(compiler), str(sources / entry), str(sources), cwd=scratch
        )
        return set(json.loads(text))
    if package.platform == "go":
        return set(json.loads(run("go", "run", str(HERE / "count_go.go"), str(sources), cwd=scratch)))
    if package.platform == "java":
        return _javap(next(sources.glob("*.jar")), scratch)
    return _rustdoc(package, sources)


def _javap(jar: Path, scratch: Path) -> set[str]:
    listing = run("jar", "tf", str(jar), cwd=scratch)
    classes = [name[:-6] for name in listing.split() if name.endswith(".class") and "META-INF" not in name]
    classes = [
        name for name in classes if "/internal/" not in name and not name.endswith(("module-info", "package-info"))
    ]
    found: set[str] = set()
    text = run("javap", "-public", "-cp", str(jar), *(name.replace("/", ".") for name in classes), cwd=scratch)
    hidden: set[str] = set()
    for block in re.split(r"(?=^Compiled from)", text, flags=re.MULTILINE):
        head = re.search(
            r"^(public .*?(?:class|interface|enum) ([\w.$]+)|.*?(?:class|interface) ([\w.$]+))", block, re.MULTILINE
        )
        if head is None or head[2] is None or re.search(r"\$\d", head[2]):
            hidden.add((head[3] if head else "") or "")
            continue
        name = head[2].rpartition(".")[2].replace("$", ".")
        found.add(name)
        for member in re.findall(r"^  public .*?([\w$.]+)\(", block, re.MULTILINE):
            label = member.rpartition(".")[2].rpartition("$")[2]
            if label not in ("values", "valueOf") or " enum " not in head[1]:
                found.add(f"{name}.{label}")
    return {each for each in found if each.split(".")[0] in found}


def _rustdoc(package: Package, sources: Path) -> set[str]:
    flags = ["--lib", "--", "-Zunstable-options", "--output-format", "json"]
    run(
        "cargo",
        "rustdoc",
        "-q",
        *flags,
        cwd=sources,
        RUSTC_BOOTSTRAP="1",
        CARGO_TARGET_DIR=str(sources.parent / "target"),
    )
    data = json.loads((sources.parent / "target/doc" / f"{package.name.replace('-', '_')}.json").read_text())
    index, found = data["index"], set[str]()

    def visit(identity: object, depth: int = 0) -> None:
        item = index.get(str(identity))
        if item is None or depth > 20:
            return
        kind, inner = next(iter(item["inner"].items()))
        if kind == "module":
            for each in inner["items"]:
                visit(each, depth + 1)
        elif kind == "use":
            if inner["id"] is not None and item["visibility"] == "public":
                visit(inner["id"], depth + 1)
        elif item["visibility"] == "public" and item["name"] and kind not in ("impl", "extern_crate", "primitive"):
            found.add(item["name"])
            for each in inner.get("impls", []) if isinstance(inner, dict) else []:
                block = index[str(each)]["inner"]["impl"]
                if block["trait"] is None:
                    for member in block["items"]:
                        entry = index.get(str(member))
                        if entry and entry["visibility"] == "public":
                            found.add(f"{item['name']}.{entry['name']}")

    visit(data["root"])
    return found
