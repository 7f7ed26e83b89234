// What a report does beside its figures. It is one script, as its parts share modules.

import {offer_critical_path} from "./critical_path.js"
import {offer_exports} from "./export_menu.js"
import {follow_range} from "./functions.js"
import {follow_longest} from "./longest_tasks.js"
import {offer_pins} from "./pinned.js"
import {start_page} from "./plain.js"

// Of each part its settings, null if the page does not have it.
export function start({marks, pins, exports, critical, functions, longest}) {
    start_page({marks})
    if (exports !== null) offer_exports(exports)
    if (critical !== null) offer_critical_path(critical)
    if (functions !== null) follow_range(functions)
    if (longest !== null) follow_longest(longest)
    if (pins !== null) offer_pins(pins)
}
