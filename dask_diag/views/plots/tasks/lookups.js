// What codes in the tooltips of tasks mean. It imports nothing: each field takes its own copy to
// the page.

export function name_of(names, code) {
    return names[code]
}

// The name of the lane at this height.
export function worker_at(names, y, lane_height) {
    return names[Math.floor(y / lane_height)] ?? ""
}

// What tasks.js says of the pixel there, once it has drawn any.
export function text_of_pixel(pixels, {x, y}) {
    return pixels.text_at?.(x, y) ?? ""
}
