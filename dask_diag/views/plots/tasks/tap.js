// A click on the plot of tasks, for the script of the page that wants to know of it.

export function tapped(rectangles, {x, y}) {
    rectangles.tapped?.(x, y)
}
