// What a report does beside its figures. It is one script, as its parts share modules.

import {offer_critical_path} from "./critical_path.js"
import {offer_exports} from "./export_menu.js"
import {mark_findings} from "./findings.js"
import {follow_range} from "./functions.js"
import {follow} from "./navigation.js"
import {offer_pins} from "./pinned.js"
import {fold_sections} from "./folded.js"
import {offer_sorting, shorten_tables} from "./sorted_tables.js"

// Of each part its settings, null if the page does not have it.
export function start({marks, pins, exports, critical, functions}) {
    fold_sections()
    follow()
    offer_sorting()
    shorten_tables()
    if (exports !== null) offer_exports(exports)
    if (marks !== null) mark_findings(marks)
    if (critical !== null) offer_critical_path(critical)
    if (functions !== null) follow_range(functions)
    if (pins !== null) offer_pins(pins)
}
