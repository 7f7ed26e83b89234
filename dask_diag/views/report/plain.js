// What each page of sections does beside its figures.

import {mark_findings} from "./findings.js"
import {follow} from "./navigation.js"
import {offer_sorting} from "./sorted_tables.js"
import {keep_units} from "./units.js"

// `marks` names the models that findings are shown in; null if the page has no figures.
export function start_page({marks}) {
    keep_units()
    follow()
    offer_sorting()
    if (marks !== null) mark_findings(marks)
}
