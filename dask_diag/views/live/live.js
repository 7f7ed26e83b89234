// The page of a recording that is being made: it asks its server what is new, and draws the answer.
//
// To draw its figures costs a page several times what its numbers do: these come every two seconds,
// figures every second or third time, at once when the reader moves them, and at the end. A page that is
// hidden asks for numbers now and then: its title has the end, and its server lives as long as the page.
// When the server does not answer, the last state stays, and the page goes on asking: a laptop sleeps,
// a tunnel breaks.

import {time_of} from "./drawing_time.js"
import {Figures, unpack} from "./figures.js"
import {show_lost, show_numbers, show_title, show_view} from "./tables.js"

const NUMBERS = 1800                // milliseconds from one to the next; the server reads for each. Two are
                                    // less than the 4 s within which it is said that a program was killed
const PICTURES = [3600, 5400]       // the same of figures, at least and at most
const SHARE_OF_TIME = 200           // of which the page draws figures one part, within these bounds
const SHARE_OF_SERVER = 200         // of which the server makes answers one part; no bounds hold for it
const WAIT_FOR_BOKEH = 20
const WAIT_FOR_MORE_ZOOM = 60
const HIDDEN = 20_000                // a server ends after a minute without a question
const MOST_FAILURES = 3
const LOST = 10_000
const ALL_TIME = 1e9
const ZOOM = 2
const STEP = 0.5                    // of what is in view

export function start(looks) {
    if (document.documentElement.dataset.figures !== "drawn") setTimeout(() => start(looks), WAIT_FOR_BOKEH)
    else new Live(new Figures(Bokeh.documents[0], looks)).begin()
}

class Live {
    constructor(figures) {
        this.figures = figures
        this.token = new URLSearchParams(location.search).get("token") ?? ""
        this.mode = "follow"
        this.revision = this.drawn = -1
        this.state = ""
        this.pictures_due = 0
        this.period = PICTURES[0]
        this.failures = 0
        this.answered = new Date()
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
        on_click("earlier", () => this.figures.move(-STEP))
        on_click("later", () => this.figures.move(STEP))
        document.addEventListener("keydown", (event) => this.press(event))
        document.addEventListener("visibilitychange", () => this.draw_soon(0))
        this.figures.when_moved(() => this.look_at("view"))
        this.ask()
    }

    press(event) {
        if (event.ctrlKey || event.metaKey || event.altKey) return
        const closer = () => this.figures.zoom(1 / ZOOM), farther = () => this.figures.zoom(ZOOM)
        const actions = {
            "+": closer, "=": closer, "-": farther, "_": farther,
            "0": () => this.look_at("all"), "Escape": () => this.look_at("follow"),
        }
        // A list that is wider than its place moves itself.
        if (!event.target.closest?.(".scroll")) {
            actions.ArrowLeft = () => this.figures.move(-STEP)
            actions.ArrowRight = () => this.figures.move(STEP)
        }
        if (!(event.key in actions)) return
        event.preventDefault()
        actions[event.key]()
    }

    // What is in view from now on: the last minute, everything, or what the reader zoomed to.
    look_at(mode) {
        this.mode = mode
        document.getElementById("follow").setAttribute("aria-pressed", mode === "follow")
        document.getElementById("everything").setAttribute("aria-pressed", mode === "all")
        this.drawn = -1
        this.draw_soon(WAIT_FOR_MORE_ZOOM)
    }

    draw_soon(wait) {
        this.pictures_due = 0
        clearTimeout(this.timer)
        this.request?.abort()
        this.request = null
        this.wait_for_next(wait)
    }

    async ask() {
        const request = this.request = new AbortController()
        const with_pictures = !document.hidden && performance.now() >= this.pictures_due
        try {
            const answer = await this.answer(request.signal, with_pictures)
            if (this.request !== request) return
            this.failures = 0
            this.answered = new Date()
            if (!answer.stream && !document.hidden && this.state !== state_of(answer)) {
                this.draw_soon(0)
                return
            }
            const took = await time_of(() => this.show(answer))
            if (this.request === request) this.wait_for_next(this.period_after(answer, took))
        } catch (error) {
            if (this.request === request) this.fail(error)
        }
    }

    show(answer) {
        this.revision = answer.revision
        show_numbers(answer)
        // Who looks elsewhere sees the title.
        if (document.hidden) show_title(answer)
        if (!answer.stream) return
        this.drawn = answer.revision
        this.state = state_of(answer)
        this.figures.draw(answer)
        show_view(answer, this.period, this.figures.looks.off_cpu)
    }

    // Milliseconds until the next question; it is one for pictures if they are due then.
    period_after(answer, took) {
        const made = SHARE_OF_SERVER * 1000 * answer.took
        if (!answer.stream) return Math.max(NUMBERS, made)
        this.period = Math.max(within(PICTURES, SHARE_OF_TIME * took), made)
        this.pictures_due = performance.now() + this.period - NUMBERS / 2
        return NUMBERS
    }

    async answer(signal, with_pictures) {
        const query = new URLSearchParams({p: Number(with_pictures)})
        query.set("r", with_pictures ? this.drawn : this.revision)
        if (with_pictures) query.set("w", this.figures.columns())
        if (with_pictures && this.mode !== "follow") {
            const [from, to] = this.mode === "all" ? [0, ALL_TIME] : this.figures.in_view()
            query.set("x0", from)
            query.set("x1", to)
        }
        const headers = {"X-Dask-Diag-Token": this.token}
        const response = await fetch(`data?${query}`, {headers, signal, cache: "no-store"})
        if (!response.ok) throw new Error(`the server answered ${response.status}`)
        const answer = await response.json()
        if (answer.stream) await unpack(answer.stream)
        return answer
    }

    wait_for_next(period) {
        clearTimeout(this.timer)
        this.timer = setTimeout(() => this.ask(), document.hidden ? HIDDEN : period)
    }

    fail(error) {
        this.failures++
        const is_lost = this.failures >= MOST_FAILURES
        if (is_lost) show_lost(error, this.answered)
        this.wait_for_next(is_lost ? LOST : NUMBERS * this.failures)
    }
}

// What numbers and pictures have to agree in: another recording, or the end of one, is drawn at once.
function state_of({recording, kind}) {
    return `${recording} ${kind}`
}

function within([least, most], value) {
    return Math.min(most, Math.max(least, value))
}
