// Prints the exported names of the packages below a folder, as go/doc sees them.
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	found := map[string]bool{}
	filepath.WalkDir(os.Args[1], func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return nil
		}
		for _, part := range strings.Split(path, "/") {
			if part == "internal" || part == "testdata" || part == "vendor" || part == "cmd" || part == "examples" || strings.HasPrefix(part, "_") {
				return filepath.SkipDir
			}
		}
		packages, err := parser.ParseDir(token.NewFileSet(), path, func(info fs.FileInfo) bool {
			return !strings.HasSuffix(info.Name(), "_test.go")
		}, parser.ParseComments)
		if err != nil {
			return nil
		}
		for name, each := range packages {
			if name == "main" {
				continue
			}
			docs := doc.New(each, path, 0)
			for _, function := range docs.Funcs {
				found[function.Name] = true
			}
			for _, group := range append(docs.Consts, docs.Vars...) {
				for _, label := range group.Names {
					found[label] = ast.IsExported(label) || found[label]
				}
			}
			for _, kind := range docs.Types {
				found[kind.Name] = true
				for _, function := range kind.Funcs {
					found[function.Name] = true
				}
				for _, method := range kind.Methods {
					found[kind.Name+"."+method.Name] = true
				}
				for _, group := range append(kind.Consts, kind.Vars...) {
					for _, label := range group.Names {
						found[label] = true
					}
				}
			}
		}
		return nil
	})
	names := []string{}
	for name, exported := range found {
		if exported && ast.IsExported(strings.Split(name, ".")[0]) {
			names = append(names, name)
		}
	}
	text, _ := json.Marshal(names)
	fmt.Println(string(text))
}
