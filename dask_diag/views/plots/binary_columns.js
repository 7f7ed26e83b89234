// Columns that travelled deflated are made columns again: the other side of binary_columns.py.

export async function unpacked({layout, data}) {
    return columns_of(layout, await inflated(data))
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
