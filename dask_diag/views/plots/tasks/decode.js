// Tasks as the page needs them, of the columns that tasks.py gives it.
//
// They stand lane by lane, in order of time. Times are multiples of `unit` seconds.

const CPU_IS_EXACT_BELOW = 1024     // ticks: CPU time of longer tasks comes without its last digits

// Of columns that are as they were measured: times are seconds.
export function plain_tasks(columns) {
    return in_lanes(columns, 1)
}

// Of columns that were packed: times are ticks, of so many seconds.
export function unpacked_tasks(columns, tick) {
    return in_lanes({...columns, ...times_of(columns)}, tick)
}

function times_of({count, gap, length, rest, unknown}) {
    const start = new Float64Array(gap.length), stop = new Float64Array(gap.length)
    const cpu = new Float64Array(gap.length)
    let i = 0
    for (const tasks_in_lane of count) {
        const end = i + tasks_in_lane
        for (let before = 0; i < end; i++) {
            start[i] = before + gap[i]
            before = stop[i] = start[i] + length[i]
            let scale = 1
            for (let left = length[i]; left >= CPU_IS_EXACT_BELOW; left /= 2) scale *= 2
            cpu[i] = length[i] - rest[i] * scale
        }
    }
    for (const index of unknown) cpu[index] = NaN
    return {start, stop, cpu}
}

// `reach` is the latest stop of a task and those before it in its lane, which ascends.
function in_lanes({count, start, stop, cpu, function: functions, outcome}, unit) {
    const lane = new Int32Array(start.length), reach = new Float64Array(start.length)
    const lanes = []
    let first = 0
    for (const tasks_in_lane of count) {
        const last = first + tasks_in_lane
        lane.fill(lanes.length, first, last)
        for (let i = first, latest = -Infinity; i < last; i++)
            reach[i] = latest = Math.max(latest, stop[i])
        lanes.push({first, last})
        first = last
    }
    return {unit, lanes, lane, start, stop, reach, cpu, function: functions, outcome}
}

// The indices of the tasks whose outcome has one of these codes.
export function indices_of_outcomes(tasks, codes) {
    const indices = []
    for (let i = 0; i < tasks.outcome.length; i++)
        if (codes.includes(tasks.outcome[i])) indices.push(i)
    return indices
}

// Which share of a task's time was CPU time; all of it if that is unknown, since a task is not said to
// be off the CPU unless it was.
export function cpu_share(tasks, i) {
    if (Number.isNaN(tasks.cpu[i])) return 1
    const length = tasks.stop[i] - tasks.start[i]
    return length > 0 && tasks.cpu[i] > 0 ? Math.min(1, tasks.cpu[i] / length) : 0
}
