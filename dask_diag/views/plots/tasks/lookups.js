// What codes in the tooltips of tasks mean. It imports nothing: each field takes its own copy to
// the page.

export function name_of(names, code) {
    return names[code]
}

// A key without most of the digits that say nothing to a reader: dask's hashes and identifiers.
export function short_key(key) {
    return key.replace(/[0-9a-f]{8}(?:-?[0-9a-f]{4}){3}-?[0-9a-f]{12}/g, (digits) => `${digits.slice(0, 6)}…`)
}

// The name of the lane at this height.
export function worker_at(names, y, lane_height) {
    return names[Math.floor(y / lane_height)] ?? ""
}

// What tasks.js says of the pixel there, once it has drawn any.
export function text_of_pixel(pixels, {x, y}) {
    return pixels.text_at?.(x, y) ?? ""
}
