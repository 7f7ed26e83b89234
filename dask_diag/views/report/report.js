// What a report does beside drawing its figures: more than other pages, which travel without it.

import {offer_critical_path} from "./critical_path.js"
import {offer_exports} from "./export_menu.js"
import {follow_functions} from "./functions.js"
import {show_lines} from "./lines.js"
import {follow_longest} from "./longest_tasks.js"
import {offer_pins} from "./pinned.js"
import {start_page} from "./plain.js"

// Settings of a part of the page are null if the page does not have it.
export function start(settings) {
    const {has_figures, exports, paths, functions, lines} = settings
    start_page(settings)
    if (exports !== null) offer_exports(exports)
    if (lines !== null) show_lines(lines, has_figures)
    if (!has_figures) return
    if (paths !== null) offer_critical_path(paths)
    if (functions !== null) follow_functions(functions)
    follow_longest()
    offer_pins()
}
