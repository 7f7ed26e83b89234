// How long a page draws.

const LONGEST_WAIT = 500            // milliseconds for a frame: a page that nobody sees has none

// Milliseconds that a change of the page takes: its own code, bokeh's in the next frame, and what the
// browser does in this thread to paint it. The wait for the frame is not in it.
export async function time_of(change) {
    const began = performance.now()
    const frame = new Promise((resolve) => { requestAnimationFrame(resolve) })
    change()
    await next_task()
    const prepared = performance.now() - began
    const frame_began = await Promise.race([frame, next_task(LONGEST_WAIT)])
    if (frame_began === undefined) return prepared
    await next_task()
    return prepared + Math.max(0, performance.now() - Math.max(frame_began, began + prepared))
}

function next_task(wait = 0) {
    return new Promise((resolve) => { setTimeout(() => resolve(), wait) })
}
