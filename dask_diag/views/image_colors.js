// Colours as images have them.

// As a number whose lowest byte is red.
export function blue_green_red(color) {
    const channels = parseInt(color.slice(1, 7), 16)
    return (channels >> 16) | (channels & 0xff00) | (channels & 0xff) << 16
}
