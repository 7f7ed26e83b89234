// What `make lint-js` asks of the scripts in pages.

import js from "@eslint/js"
import globals from "globals"

const NAMED_IMPORTS = "dask_diag/views/assets.py links named imports only: import {name} from \"./file.js\""
const NAMED_EXPORTS = "dask_diag/views/assets.py links what is exported where it is defined"

export default [
    js.configs.recommended,
    {
        files: ["dask_diag/**/*.js"],
        languageOptions: {
            ecmaVersion: 2022,
            globals: {...globals.browser, Bokeh: "readonly"},
        },
        linterOptions: {reportUnusedDisableDirectives: "error"},
        rules: {
            "array-callback-return": "error",
            "complexity": ["error", 15],
            "consistent-return": "error",
            "eqeqeq": "error",
            "max-len": ["error", 110],
            "max-lines": ["error", 300],
            "max-lines-per-function": ["error", 60],
            "no-shadow": "error",
            "no-unused-expressions": "error",
            "no-var": "error",
            "object-shorthand": "error",
            "prefer-const": "error",
            // Of the browser's globals, those that a forgotten declaration would be mistaken for.
            "no-restricted-globals": ["error", "event", "length", "name", "parent", "status", "top"],
            "no-restricted-syntax": [
                "error",
                {selector: "ImportDefaultSpecifier, ImportNamespaceSpecifier", message: NAMED_IMPORTS},
                {selector: "ImportDeclaration[specifiers.length=0]", message: NAMED_IMPORTS},
                {selector: "ImportExpression", message: "a page has no files to load"},
                {selector: "ExportDefaultDeclaration, ExportAllDeclaration", message: NAMED_EXPORTS},
                {selector: "ExportNamedDeclaration[specifiers.length>0]", message: NAMED_EXPORTS},
                {selector: "ExportNamedDeclaration > VariableDeclaration[declarations.length>1]",
                 message: NAMED_EXPORTS},
            ],
        },
    },
    {files: ["eslint.config.js"], languageOptions: {globals: globals.node}},
]
