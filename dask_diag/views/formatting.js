// Numbers with their units, as text: the one place where pages format a number for a reader.
//
// formatting.py has the same rules, and tests/formatting_cases.json holds both to one table of cases.
// What is measured has three significant digits, zeros included; what is counted is whole.

const PREFIXES = [["T", 12], ["G", 9], ["M", 6], ["k", 3], ["", 0]]
const UNITS_OF_TIME = [["s", 0], ["ms", -3], ["µs", -6], ["ns", -9]]

// A duration in seconds, in the unit that suits it.
export function seconds(value) {
    if (!Number.isFinite(value)) return not_finite(value, " s")
    if (value === 0) return "0 s"
    const rounded = rounded_to_three(value)
    const [unit, power] = largest_unit(UNITS_OF_TIME, rounded)
    return `${digits(value, rounded, power)} ${unit}`
}

// Bytes, in the unit that suits them, of powers of a thousand.
export function size(value) {
    return prefixed(value, " ", "B")
}

// A number, with an SI prefix if it is large.
export function amount(value) {
    return prefixed(value, "", "")
}

// An amount of any unit: bytes as a size, seconds as a duration, of others with the unit.
export function quantity(value, unit) {
    const text = short_quantity(value, unit)
    const has_unit = ["", "seconds", "bytes"].includes(unit) || Number.isNaN(value)
    return has_unit ? text : `${text} ${unit}`
}

// The same without the unit where it may be long, where it is written already.
export function short_quantity(value, unit) {
    return unit === "seconds" ? seconds(value) : unit === "bytes" ? size(value) : amount(value)
}

// How many there are: a whole number.
export function count(value) {
    if (!Number.isFinite(value)) return not_finite(value, "")
    // Not toFixed, which writes an exponent from 1e21 on; a tie is rounded away from zero.
    const whole = BigInt(Math.round(Math.abs(value)))
    const text = String(whole).replace(/\B(?=(\d{3})+$)/g, ",")
    return value < 0 && whole > 0n ? `-${text}` : text
}

// A share of one as per cent: whole, and below one with a decimal.
export function percent(share) {
    if (!Number.isFinite(share)) return not_finite(share, "%")
    const hundredths = 100 * share
    const magnitude = Math.abs(hundredths)
    if (magnitude >= 0.95 || magnitude === 0) return `${count(hundredths)}%`
    if (magnitude < 0.05) return share > 0 ? "<0.1%" : ">-0.1%"
    return `${hundredths.toFixed(1)}%`
}

// A moment on a time axis, in seconds: a location among others, so not rounded to three digits.
export function moment(value, decimals = 6) {
    return `${value.toFixed(decimals)} s`
}

// A number at an axis: all have one prefix, and the decimals in which their steps differ.
//
// Steps are 1, 2 or 5 times a power of ten.
export function tick_text(tick, ticks, unit = "") {
    const space = unit ? " " : ""
    if (tick === 0) return `0${space}${unit}`
    const largest = Math.max(...ticks.map(Math.abs))
    const [prefix, power] = largest_unit(PREFIXES, rounded_to_three(largest))
    const steps = ticks.slice(1).map((next, i) => Math.abs(next - ticks[i]))
    const step = Math.min(...steps, largest || 1) / 10 ** power
    const decimals = Math.max(0, Math.ceil(-Math.log10(step) - 1e-9))
    return `${(tick / 10 ** power).toFixed(Math.min(decimals, 20))}${space}${prefix}${unit}`
}

function prefixed(value, space, unit) {
    if (!Number.isFinite(value)) return not_finite(value, space + unit)
    // Bytes and results are counted: seven of them are not 7.00.
    if (Math.abs(value) < 1000 && Number.isInteger(value)) return `${value}${space}${unit}`
    const rounded = rounded_to_three(value)
    const [prefix, power] = largest_unit(PREFIXES, rounded)
    return `${digits(value, rounded, power)}${space}${prefix}${unit}`
}

// Three digits, as "1.23", and the power of ten that they are in units of.
function rounded_to_three(value) {
    const text = value.toExponential(2)
    const end = text.indexOf("e")
    return {mantissa: text.slice(0, end), exponent: Number(text.slice(end + 1))}
}

// The unit is chosen by the rounded number: 999.6 ms is 1.00 s, never 1,000 ms.
function largest_unit(units, {exponent}) {
    return units.find(([, power]) => exponent >= power) ?? units.at(-1)
}

// `value`, which is not zero, in units of ten to this power.
//
// Three significant digits; a whole number from a thousand on, an exponent below 0.001.
function digits(value, {mantissa, exponent}, power) {
    const scaled = exponent - power
    if (scaled === 0) return mantissa
    if (scaled >= 3) return count(value / 10 ** power)
    if (scaled < -3) return `${mantissa}e${scaled}`
    return (Number(mantissa) * 10 ** scaled).toFixed(2 - scaled)
}

function not_finite(value, unit) {
    if (Number.isNaN(value)) return "unknown"
    return `${value < 0 ? "-" : ""}∞${unit}`
}
