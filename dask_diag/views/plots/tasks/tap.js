// A click on the plot of tasks, or a move of the mouse, for the script of the page that wants to know of it.

export function heard(rectangles, {event_name, x, y}) {
    rectangles[event_name]?.(x, y)
}
