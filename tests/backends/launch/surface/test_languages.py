"""The public surface of each language: names, signatures, parameters, documentation; private names never."""

from typing import Any

import pytest

from backends.launch.surface.extraction import extract
from backends.launch.surface.model import Symbol

SOURCES: dict[str, dict[str, str]] = {
    "python": {
        "src/pkg/__init__.py": '''"""A package."""
from ._core import Scene
from .tools import *
import os
''',
        "src/pkg/_core.py": '''
class Scene:
    """A tree of nodes.

    Args:
        path: Where it is.
    """

    def __init__(self, path: str = "a", *rest: int, deep: bool = False) -> None: ...

    def scale(self, factor: float) -> "Scene":
        """Scale it.

        :param factor: The factor.
        :returns: The same scene.
        :raises ValueError: If it is zero.
        """

    def _hidden(self): ...

class _Secret: ...
''',
        "src/pkg/tools.py": '''
__all__ = ["convert"]
from typing_extensions import deprecated

@deprecated("Use Scene.")
def convert(source, /, target="x.stl", *, fast=True):
    """Convert a file.

    Parameters
    ----------
    source : str
        The source.

    Returns
    -------
    int
        The size.
    """

def helper(): ...
''',
        "tests/test_it.py": "def test_it(): ...\n",
        "setup.py": "def run(): ...\n",
    },
    "typescript": {
        "package.json": '{"name": "shapes", "main": "dist/index.js"}',
        "src/index.ts": 'export { Scene, type Options } from "./scene";\nexport * from "./convert.js";\n'
        'import { secret } from "./scene";\nconst local = secret;\n',
        "src/scene.ts": """
/** A tree of nodes. */
export class Scene<T> extends Base {
  /**
   * Scale it.
   * @param factor - The factor.
   * @returns The same scene.
   * @deprecated Use resize.
   */
  scale(factor: number = 1, ...rest: string[]): Scene<T> { return this; }
  private hidden(): void {}
  #own = 1;
  readonly size?: number;
}
export interface Options { /** The name. */ name: string; run?(x: number): void }
export const secret = 1;
""",
        "src/convert.ts": "/** Convert. */\nexport const convert = async (a: string, b = 2): Promise<void> => {};\n"
        "/** @internal */\nexport function inside() {}\n"
        "export type Kind = 'a' | 'b';\nexport enum Color { Red, Blue }\n",
    },
    "javascript": {
        "package.json": '{"name": "shapes", "main": "lib/index.js"}',
        "lib/index.js": "const Scene = require('./scene');\n/** Convert. @param {string} a The a. */\n"
        "function convert(a, b = 1) {}\nfunction hidden() {}\nmodule.exports = { Scene, convert };\n",
        "lib/scene.js": "/** A tree. */\nclass Scene { scale(factor) {} _own() {} }\nmodule.exports = Scene;\n",
    },
    "go": {
        "go.mod": "module example.org/shapes\n",
        "scene.go": """// Package shapes reads scenes.
package shapes

// Scene is a tree of nodes.
type Scene struct {
\t// Size is the size.
\tSize int
\tname string
}

// Scale scales it.
//
//\ts.Scale(2)
//
// Deprecated: Use Resize.
func (s *Scene) Scale(factor, other float64, names ...string) (*Scene, error) { return s, nil }

func (s *Scene) hide() {}

type hidden struct{}

// Reader reads.
type Reader interface {
\t// Read reads.
\tRead(p []byte) (int, error)
}

// Max is the limit.
const Max = 10

func Convert[T any](a T) T { return a }
""",
        "scene_test.go": "package shapes\n\nfunc TestScene() {}\n",
        "internal/x/x.go": "package x\n\nfunc Secret() {}\n",
        "cmd/tool/main.go": "package main\n\nfunc Main() {}\n",
    },
    "rust": {
        "Cargo.toml": '[package]\nname = "shapes"\n',
        "src/lib.rs": """//! Reads scenes.
mod scene;
pub mod tools;
pub use scene::{Scene, Options as Settings};
pub(crate) fn inside() {}
#[macro_export]
macro_rules! shape { () => {}; }
""",
        "src/scene.rs": """
/// A tree of nodes.
///
/// # Examples
///
/// ```
/// # use shapes::Scene;
/// let scene = Scene::new(1);
/// ```
#[derive(Debug)]
pub struct Scene { pub size: usize, name: String }

impl Scene {
    /// Makes a scene.
    pub fn new<'a>(size: usize, names: &'a str) -> Self { todo!() }
    fn hidden(&self) {}
    #[deprecated(note = "Use resize.")]
    pub fn scale(&mut self, factor: f64) -> Result<(), Error> { Ok(()) }
}
pub struct Options;
pub struct Unreachable;
""",
        "src/tools.rs": "/// Converts.\npub fn convert(a: &str) -> u8 { 1 }\npub enum Kind { /// First.\n A, B(u8) }\n"
        "pub trait Shape { /// Draws.\n fn draw(&self, depth: u8); }\n#[doc(hidden)]\npub fn secret() {}\n",
    },
    "java": {
        "src/main/java/org/shapes/Scene.java": """package org.shapes;
/**
 * A tree of {@link Node nodes}, see {@code Node}.
 * <p>Second <b>paragraph</b>.
 */
@Deprecated
public final class Scene<T> extends Base implements Closeable {
  /** The limit. */
  public static final int MAX = 10;
  private int size;
  /**
   * Scale it.
   * @param factor the factor
   * @param names the names
   * @return the same scene
   * @throws IOException if it fails
   */
  @Override public Scene<T> scale(final double factor, String... names) throws IOException { return this; }
  void hidden() {}
  public Scene(Map<String, Integer> options) {}
  public enum Kind { /** First. */ A, B }
}
class Secret {}
""",
        "src/test/java/org/shapes/SceneTest.java": "package org.shapes;\npublic class SceneTest {}\n",
    },
    "kotlin": {
        "src/main/kotlin/Scene.kt": """package org.shapes

/** A tree of nodes. */
class Scene(val size: Int, name: String = "a") : Base() {
    /**
     * Scale it.
     * @param factor the factor
     * @return the same scene
     */
    @Deprecated("Use resize.")
    fun scale(factor: Double = 1.0): Scene { return this }
    private fun hidden() {}
    val depth: Int = 1
}

internal class Secret

/** Converts. */
fun String.convert(target: String): Int = 1

interface Shape {
    fun draw()
}
""",
    },
    "csharp": {
        "Scene.cs": """namespace Shapes
{
    /// <summary>A tree of <see cref="Node"/>.</summary>
    public class Scene : Base
    {
        /// <summary>Scale it.</summary>
        /// <param name="factor">The factor.</param>
        /// <returns>The same scene.</returns>
        [Obsolete("Use Resize.")]
        public Scene Scale(double factor, string name = "a") { return this; }
        private void Hidden() {}
        /// <summary>The size.</summary>
        public int Size { get; set; }
        public Scene(int size) {}
    }
    internal class Secret {}
    public enum Kind { A, B }
}
""",
    },
    "cpp": {
        "include/shapes/scene.hpp": """#pragma once
#ifndef X
namespace shapes {
/**
 * A tree of nodes.
 */
class Scene : public Base {
public:
    /// Scale it.
    /// @param factor The factor.
    /// @return The same scene.
    Scene& scale(double factor, const std::string& name = "a") const;
    explicit Scene(int size);
    int depth;
private:
    void hidden();
};
/// Converts.
template <typename T> T convert(T a);
enum class Kind { A, B };
namespace detail { void secret(); }
}
#endif
""",
        "src/scene.cpp": "void Implementation() {}\n",
    },
    "ruby": {
        "lib/shapes.rb": """# Reads scenes.
module Shapes
  # A tree of nodes.
  class Scene < Base
    MAX = 10
    attr_reader :size

    # Scale it.
    # @param factor [Float] the factor
    # @return [Scene] the same scene
    def scale(factor, name = "a", deep: true)
    end

    def self.load(path)
    end

    private

    def hidden
    end
  end

  class Secret; end
  private_constant :Secret
end
""",
        "spec/shapes_spec.rb": "class SpecOnly; end\n",
    },
    "php": {
        "src/Scene.php": """<?php
namespace Shapes;

/**
 * A tree of nodes.
 */
final class Scene extends Base
{
    public const MAX = 10;
    public int $size = 1;
    /**
     * Scale it.
     *
     * @param float $factor the factor
     * @return Scene the same scene
     * @deprecated Use resize.
     */
    public function scale(float $factor, ?string $name = null): Scene {}
    private function hidden() {}
}
/** @internal */
class Secret {}
function convert(string $a): int { return 1; }
""",
    },
    "swift": {
        "Sources/Shapes/Scene.swift": """
/// A tree of nodes.
public class Scene: Base {
    /// Scale it.
    ///
    /// - Parameters:
    ///   - factor: The factor.
    /// - Returns: The same scene.
    public func scale(by factor: Double = 1, _ name: String) throws -> Scene { return self }
    func hidden() {}
    public init(size: Int) {}
    public var size: Int { 1 }
}
struct Secret {}
public protocol Shape { func draw() }
public extension Scene { func extra() {} }
public enum Kind { case a }
""",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Symbol]]:
    result: dict[str, dict[str, Symbol]] = {}
    for language, files in SOURCES.items():
        root = tmp_path_factory.mktemp(language)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        symbols = extract(language, root, sorted(files), "shapes")
        result[language] = {symbol.qualified_name: symbol for symbol in symbols}
    return result


PUBLIC: dict[str, set[str]] = {
    "python": {"pkg", "Scene", "Scene.scale", "convert"},
    "typescript": {"Scene", "Scene.scale", "Scene.size", "Options", "Options.name", "Options.run", "convert", "Kind",
                   "Color", "Color.Red", "Color.Blue"},
    "javascript": {"Scene", "Scene.scale", "convert"},
    "go": {"example.org/shapes", "Scene", "Scene.Size", "Scene.Scale", "Reader", "Reader.Read", "Max", "Convert"},
    "rust": {"shapes", "Scene", "Scene.size", "Scene.new", "Scene.scale", "Settings", "shape", "convert", "Kind",
             "Kind.A", "Kind.B", "Shape", "Shape.draw"},
    "java": {"Scene", "Scene.MAX", "Scene.scale", "Scene.Scene", "Scene.Kind", "Scene.Kind.A", "Scene.Kind.B"},
    "kotlin": {"Scene", "Scene.scale", "Scene.depth", "convert", "Shape", "Shape.draw"},
    "csharp": {"Scene", "Scene.Scale", "Scene.Size", "Scene.Scene", "Kind", "Kind.A", "Kind.B"},
    "cpp": {"Scene", "Scene.scale", "Scene.Scene", "Scene.depth", "convert", "Kind", "Kind.A", "Kind.B"},
    "ruby": {"Shapes", "Shapes.Scene", "Shapes.Scene.MAX", "Shapes.Scene.size", "Shapes.Scene.scale",
             "Shapes.Scene.load"},
    "php": {"Scene", "Scene.MAX", "Scene.$size", "Scene.scale", "convert"},
    "swift": {"Scene", "Scene.scale", "Scene.init", "Scene.size", "Scene.extra", "Shape", "Shape.draw", "Kind",
              "Kind.a"},
}  # fmt: skip


@pytest.mark.parametrize("language", SOURCES)
def test_exactly_the_public_names_are_found(found: dict[str, dict[str, Symbol]], language: str) -> None:
    assert set(found[language]) == PUBLIC[language]


SCALE = {"go": "Scene.Scale", "csharp": "Scene.Scale", "ruby": "Shapes.Scene.scale"}
FACTOR_TYPE = {
    "python": "float", "typescript": "number", "go": "float64", "rust": "f64", "java": "double", "kotlin": "Double",
    "csharp": "double", "cpp": "double", "ruby": "Float", "php": "float", "swift": "Double", "javascript": "",
}  # fmt: skip


@pytest.mark.parametrize("language", SOURCES)
def test_method_has_its_parameters_with_types_and_descriptions(found: Any, language: str) -> None:
    symbol = found[language][SCALE.get(language, "Scene.scale")].as_json()
    factor = next(each for each in symbol["parameters"] if each["name"].lstrip("$") == "factor")
    assert factor["type"] == FACTOR_TYPE[language]
    if language not in ("go", "rust", "javascript"):
        assert factor["description"].rstrip(".").lower() == "the factor"
        assert symbol["returns"]["description"].rstrip(".").lower() == "the same scene"
    assert "scale" in symbol["signature"].lower()
    assert symbol["line"] > 0
    assert symbol["path"] in SOURCES[language]


@pytest.mark.parametrize("language", sorted(set(SOURCES) - {"javascript", "ruby", "cpp", "swift", "python"}))
def test_deprecation_is_found(found: Any, language: str) -> None:
    symbols = found[language].values()
    assert [each.doc.deprecated for each in symbols if each.doc.deprecated is not None] != []


@pytest.mark.parametrize("language", SOURCES)
def test_class_has_the_description_of_its_comment(found: Any, language: str) -> None:
    symbol = found[language]["Shapes.Scene" if language == "ruby" else "Scene"]
    assert "ree" in symbol.doc.blocks[0].text


def test_signatures_are_those_of_the_source(found: Any) -> None:
    assert found["python"]["convert"].signature == "def convert(source, /, target='x.stl', *, fast=True)"
    assert found["python"]["Scene"].signature == "class Scene(path: str = 'a', *rest: int, deep: bool = False)"
    assert found["python"]["Scene"].module == "pkg"
    assert found["typescript"]["convert"].signature == "async function convert(a: string, b = 2): Promise<void>"
    assert found["go"]["Scene.Scale"].signature == (
        "func (s *Scene) Scale(factor, other float64, names ...string) (*Scene, error)"
    )
    assert found["rust"]["Scene.new"].signature == "pub fn new<'a>(size: usize, names: &'a str) -> Self"
    assert found["java"]["Scene.scale"].signature == (
        "public Scene<T> scale(final double factor, String... names) throws IOException"
    )
    assert found["swift"]["Scene.scale"].signature == (
        "public func scale(by factor: Double = 1, _ name: String) throws -> Scene"
    )
    assert found["csharp"]["Scene.Scale"].signature == 'public Scene Scale(double factor, string name = "a")'
    assert found["php"]["Scene.scale"].signature == "public function scale(float $factor, ?string $name = null): Scene"


def test_example_of_a_comment_is_kept_as_code(found: Any) -> None:
    code = [block for block in found["rust"]["Scene"].doc.blocks if block.kind == "code"]
    assert [(block.language, block.text) for block in code] == [("rust", "let scene = Scene::new(1);\n")]
    code = [block for block in found["go"]["Scene.Scale"].doc.blocks if block.kind == "code"]
    assert [block.text for block in code] == ["s.Scale(2)\n"]
