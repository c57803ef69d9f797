#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Makes a table of arguments and results for `rtrace run --args-from` of a C header, by clang.

usage: table_from_header.py LIBRARY HEADER [OPTIONS OF CLANG...] >TABLE.toml

Declares the functions that the header itself declares: `c = "int f(int n)"` each, with the types that they need. A person adds metrics and what pointers point to; docs/arguments.md describes that.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

LIBRARY, HEADER, OPTIONS = sys.argv[1], sys.argv[2], sys.argv[3:]
KNOWN = set(
    "void char short int long float double signed unsigned const volatile restrict struct union enum _Bool size_t ssize_t".split()
)


def declarations():
    """What the header declares, with the file of each."""
    include = f'#include "{HEADER}"\n' if Path(HEADER).exists() else f"#include <{HEADER}>\n"
    clang = ["clang", *OPTIONS, "-x", "c", "-I.", "-fsyntax-only", "-Xclang", "-ast-dump=json", "-"]
    tree = json.loads(subprocess.run(clang, input=include, capture_output=True, text=True, check=True).stdout)
    file = ""
    for node in tree["inner"]:
        # clang names a file only where it is another than before.
        place = node.get("loc", {})
        place = place.get("expansionLoc", place)
        file = place.get("file", file)
        yield node, Path(file)


def main():
    nodes = list(declarations())
    types, functions = {}, {}
    for node, file in nodes:
        if node["kind"] == "TypedefDecl":
            types[node["name"]] = node["type"].get("desugaredQualType", node["type"]["qualType"])
        elif node["kind"] == "FunctionDecl" and file.name == Path(HEADER).name and node.get("storageClass") != "static":
            functions[node["name"]] = node
    print(f'[library]\nnames = ["{LIBRARY}"]\n')
    prototypes, needed = [], {}
    for function, node in functions.items():
        params = [param for param in node.get("inner", []) if param["kind"] == "ParmVarDecl"]
        result = node["type"]["qualType"].split("(")[0].strip()
        texts = [declared(param["type"]["qualType"], param.get("name", "")) for param in params]
        texts += ["..."] if node.get("variadic") else []
        prototypes.append(f"{result} {function}({', '.join(texts) or 'void'})")
        words = " ".join([result, *(param["type"]["qualType"] for param in params)])
        for word in re.findall(r"(?<!struct )(?<!union )(?<!enum )\b[A-Za-z_]\w*", words):
            if word not in KNOWN and word in types:
                needed[word] = scalar(types, types[word])
    if needed:
        print("[types]")
        print("\n".join(f'{name} = "{text}"' for name, text in sorted(needed.items())) + "\n")
    print("\n".join(f'[[function]]\nc = "{prototype}"\n' for prototype in prototypes))


def scalar(types, text):
    """A type by those that every table knows; a structure, or a function that is pointed to, by a pointer to something."""
    for _ in range(16):
        if "(" in text or re.match(r"(const )?(struct|union)\b.*\*$", text):
            return "void *"
        word = re.sub(r"\b(const|volatile)\b|\*", "", text).strip()
        if word not in types:
            return "int" if text.startswith("enum") else text
        text = text.replace(word, types[word])
    return text


def declared(text, name):
    """A parameter as C declares it."""
    if "(" in text:
        return f"void *{name}"
    if "[" in text:
        before, brackets = text.split("[", 1)
        return f"{before.strip()} {name}[{brackets}"
    return f"{text}{'' if text.endswith('*') else ' '}{name}".strip()


main()
