// The page of a recording that is being made: it asks its server what is new, and draws the answer.
//
// A page that is hidden asks nothing. When the server is gone, the last state stays.

import {Figures} from "./figures.js"
import {show_answer, show_lost} from "./tables.js"

const SHORTEST_PERIOD = 1000        // milliseconds: the server reads the recording as often
const SHARE_OF_TIME = 50            // of which the page works one part at most
const SHARE_OF_SERVER = 200         // and its server, of the CPU time of a core
const PERIOD_OF_LONG_TIME = 2000    // of all time, or what was zoomed to, less changes in a picture
const WAIT_FOR_BOKEH = 20
const WAIT_FOR_MORE_ZOOM = 60
const MOST_FAILURES = 3
const ALL_TIME = 1e9
const ZOOM = 2

export function start() {
    if (document.documentElement.dataset.figures !== "drawn") setTimeout(start, WAIT_FOR_BOKEH)
    else new Live(new Figures(Bokeh.documents[0])).begin()
}

class Live {
    constructor(figures) {
        this.figures = figures
        this.token = new URLSearchParams(location.search).get("token") ?? ""
        this.mode = "follow"
        this.revision = -1
        this.failures = 0
        this.request = null
        this.timer = null
    }

    begin() {
        document.getElementById("report").href = `report?token=${encodeURIComponent(this.token)}`
        const on_click = (id, action) => document.getElementById(id).addEventListener("click", action)
        on_click("follow", () => this.look_at("follow"))
        on_click("everything", () => this.look_at("all"))
        on_click("zoom-in", () => this.figures.zoom(1 / ZOOM))
        on_click("zoom-out", () => this.figures.zoom(ZOOM))
        on_click("earlier", () => this.figures.move(-0.5))
        on_click("later", () => this.figures.move(0.5))
        document.addEventListener("keydown", (event) => this.press(event))
        document.addEventListener("visibilitychange", () => this.ask_soon(0))
        this.figures.when_moved(() => this.look_at("view"))
        this.ask()
    }

    press(event) {
        if (event.ctrlKey || event.metaKey || event.altKey) return
        const actions = {
            "+": () => this.figures.zoom(1 / ZOOM), "-": () => this.figures.zoom(ZOOM),
            "0": () => this.look_at("all"), "Escape": () => this.look_at("follow"),
        }
        if (event.key in actions) actions[event.key]()
    }

    // What is in view from now on: the last minute, everything, or what the reader zoomed to.
    look_at(mode) {
        this.mode = mode
        document.getElementById("follow").setAttribute("aria-pressed", mode === "follow")
        document.getElementById("everything").setAttribute("aria-pressed", mode === "all")
        this.revision = -1
        this.ask_soon(WAIT_FOR_MORE_ZOOM)
    }

    ask_soon(wait) {
        clearTimeout(this.timer)
        this.request?.abort()
        this.request = null
        if (!document.hidden) this.timer = setTimeout(() => this.ask(), wait)
    }

    async ask() {
        const request = this.request = new AbortController()
        try {
            const answer = await this.answer(request.signal)
            if (this.request !== request) return
            this.failures = 0
            const began = performance.now()
            this.revision = answer.revision
            this.figures.draw(answer)
            show_answer(answer)
            const took = performance.now() - began
            const servers = SHARE_OF_SERVER * 1000 * answer.took
            const shortest = this.mode === "follow" ? SHORTEST_PERIOD : PERIOD_OF_LONG_TIME
            this.wait_for_next(Math.max(shortest, SHARE_OF_TIME * took, servers))
        } catch (error) {
            if (this.request === request) this.fail(error)
        }
    }

    async answer(signal) {
        const query = new URLSearchParams({w: this.figures.columns(), r: this.revision})
        const [from, to] = this.mode === "all" ? [0, ALL_TIME] : this.figures.in_view()
        if (this.mode !== "follow") {
            query.set("x0", from)
            query.set("x1", to)
        }
        const headers = {"X-Dask-Diag-Token": this.token}
        const response = await fetch(`data?${query}`, {headers, signal, cache: "no-store"})
        if (!response.ok) throw new Error(`the server answered ${response.status}`)
        return response.json()
    }

    wait_for_next(period) {
        clearTimeout(this.timer)
        if (!document.hidden) this.timer = setTimeout(() => this.ask(), period)
    }

    fail(error) {
        this.failures++
        if (this.failures < MOST_FAILURES) this.wait_for_next(SHORTEST_PERIOD * this.failures)
        else show_lost(error)
    }
}
