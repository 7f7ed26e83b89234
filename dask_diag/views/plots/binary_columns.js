// Columns that travelled deflated are made columns again: the other side of figures.py.

// Base 85 as Python has it, but for the last letters, which nothing in a page escapes.
const LETTERS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=:?@^_/{|}~"

export async function unpacked({layout, data}) {
    return columns_of(layout, await inflated(bytes_of(data)))
}

// Five letters are four bytes, the highest first; at the end there may be fewer of both.
export function bytes_of(text) {
    const digits = new Uint8Array(128)
    for (let digit = 0; digit < LETTERS.length; digit++) digits[LETTERS.charCodeAt(digit)] = digit
    const groups = Math.ceil(text.length / 5)
    const bytes = new DataView(new ArrayBuffer(4 * groups))
    for (let group = 0; group < groups; group++) {
        let value = 0
        for (let i = 5 * group; i < 5 * group + 5; i++)
            value = 85 * value + (i < text.length ? digits[text.charCodeAt(i)] : 84)
        bytes.setUint32(4 * group, value)
    }
    return new Uint8Array(bytes.buffer, 0, Math.floor(text.length * 4 / 5))
}

async function inflated(data) {
    if (typeof DecompressionStream === "undefined")
        throw new Error("this browser cannot unpack what is to be drawn (it has no DecompressionStream): "
            + "open the page in a browser from 2023 or later")
    const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"))
    return new Uint8Array(await new Response(stream).arrayBuffer())
}

function columns_of(layout, bytes) {
    const columns = {}
    let offset = 0
    for (const [name, length, width, is_signed] of layout) {
        const size = length * Math.max(width, 1)
        const part = bytes.subarray(offset, offset + size)
        columns[name] = width === 0 ? new TextDecoder().decode(part)
            : numbers_of(part, length, width, is_signed)
        offset += size
    }
    return columns
}

// The bytes stand plane by plane, all lowest bytes first.
function numbers_of(bytes, length, width, is_signed) {
    const values = width <= 3 ? new Int32Array(length) : new Float64Array(length)
    for (let plane = 0, scale = 1; plane < width; plane++, scale *= 256)
        for (let i = 0; i < length; i++) values[i] += scale * bytes[plane * length + i]
    // 0, 1, 2, 3, ... mean 0, -1, 1, -2, ...
    if (is_signed)
        for (let i = 0; i < length; i++)
            values[i] = values[i] % 2 ? -(values[i] + 1) / 2 : values[i] / 2
    return values
}
