// The search above the list of functions, and the buttons beside it.

// Hides the functions in whose names is not what is searched for.
export function show_matches({search, function_list}) {
    const hidden = matches(search, function_list)
        .flatMap((is_match, i) => is_match ? [] : [`.bk-input-group > label:nth-child(${i + 1})`])
    const style = hidden.length > 0 ? [`${hidden.join(",")} { display: none }`] : []
    function_list.stylesheets = [function_list.stylesheets[0], ...style]
}

// Chooses the functions that are shown, or takes them out of the choice.
export function choose_matches({search, function_list, choose}) {
    const chosen = new Set(function_list.active)
    matches(search, function_list).forEach((is_match, i) => {
        if (is_match && choose) chosen.add(i)
        else if (is_match) chosen.delete(i)
    })
    function_list.active = [...chosen].sort((a, b) => a - b)
}

function matches(search, function_list) {
    const text = search.value_input.trim().toLowerCase()
    return function_list.labels.map((label) => label.toLowerCase().includes(text))
}
