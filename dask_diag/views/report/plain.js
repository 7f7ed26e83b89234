// What each page of sections does beside its figures.

import {mark_findings} from "./findings.js"
import {fold_sections} from "./folded.js"
import {follow} from "./navigation.js"
import {offer_sorting, shorten_tables} from "./sorted_tables.js"
import {keep_units} from "./units.js"

// `marks` names the models that findings are shown in; null if the page has no figures.
export function start_page({marks}) {
    keep_units()
    fold_sections()
    follow()
    offer_sorting()
    shorten_tables()
    if (marks !== null) mark_findings(marks)
}
