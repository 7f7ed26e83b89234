// What a report does beside its figures. It is one script, as its parts share modules.

import {offer_exports} from "./export_menu.js"
import {mark_findings} from "./findings.js"
import {follow} from "./navigation.js"
import {offer_pins} from "./pinned.js"
import {offer_sorting} from "./sorted_tables.js"

// Of each part its settings, null if the page does not have it.
export function start({marks, pins, exports}) {
    follow()
    offer_sorting()
    if (exports !== null) offer_exports(exports)
    if (marks !== null) mark_findings(marks)
    if (pins !== null) offer_pins(pins)
}
