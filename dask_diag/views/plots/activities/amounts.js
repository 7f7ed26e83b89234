// A number with its unit, in few characters.
function amount(value, unit) {
    if (isNaN(value)) return "unknown"
    const size = Math.abs(value)
    const digits = (number) => size && Math.abs(number) < 1000 ? +number.toPrecision(3) : Math.round(number)
    if (unit == "seconds") {
        if (size >= 1 || size == 0) return digits(value).toLocaleString("en") + " s"
        return size >= 1e-3 ? digits(1e3 * value) + " ms" : digits(1e6 * value) + " µs"
    }
    for (const [factor, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]])
        if (size >= 0.9995 * factor || factor == 1) {
            const number = +(value / factor).toPrecision(3)
            return unit == "bytes" ? `${number} ${prefix}B` : `${number}${prefix} ${unit}`.trimEnd()
        }
}

// Without the unit where it may be long; the axis has it.
function short_amount(value, unit) {
    return amount(value, ["seconds", "bytes"].includes(unit) ? unit : "")
}

function percent(share) {
    if (isNaN(share)) return "unknown"
    return share && Math.abs(share) < 0.005 ? "<1%" : Math.round(100 * share) + "%"
}
