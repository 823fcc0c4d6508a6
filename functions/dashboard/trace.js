const stepTime = seconds => Math.abs(seconds) < 10 ? `${seconds < 0 ? '' : '+'}${Math.round(seconds * 1000)} ms` : `${seconds < 0 ? '-' : '+'}${duration(Math.abs(seconds))}`;
const endOf = hop => hop.outcome ?? 'no outcome on record';

const hopOf = (hop, index) => {
  const where = `${hop.source}${hop.partition ? `, partition ${hop.partition}` : ''}${hop.sequence_number === null ? '' : `, sequence number ${hop.sequence_number}`}`;
  const steps = hop.steps.map(each => make('tr', {},
    make('td', { class: 'n', 'data-label': 'After', title: each.time, text: stepTime(each.after) }),
    make('td', { 'data-label': 'By', text: each.by }),
    make('td', { 'data-label': 'Outcome', class: `outcome is-${each.outcome}`, text: each.outcome }),
    make('td', { 'data-label': 'Where and why', text: [each.place, each.reason, ...each.notes].filter(Boolean).join('; ') })));
  const changes = hop.changes.length ? [make('p', { class: 'muted', text: hop.changes.join('; ') })] : [];
  return make('li', {},
    make('p', {}, make('strong', { text: `${index + 1}. ${hop.task}` }), ` from ${where}: ${endOf(hop)}`),
    make('p', { class: 'muted', text: `enqueued at the source ${hop.began.replace('T', ' ')}` }),
    make('table', { class: 'steps' },
      make('thead', {}, make('tr', {}, ...['After', 'By', 'Outcome', 'Where and why'].map((text, column) => make('th', { scope: 'col', class: column ? null : 'n', text })))),
      make('tbody', {}, ...steps)), ...changes);
};

const traceOf = found => {
  const hours = `journals of ${found.first_hour}:00 to ${found.last_hour}:59 UTC`;
  const last = found.hops.at(-1);
  const sentence = last ? `${count(found.hops.length, 'hop')}, the last one in ${last.task}: ${endOf(last)} (${hours}).` : `No record in the ${hours}.`;
  return [make('p', {}, make('bdi', { class: 'id', text: found.message_id }), `: ${sentence}`),
    make('ol', { class: 'hops' }, ...found.hops.map(hopOf)), ...list('Not read', found.problems)];
};

const showTrace = async (into, parameters) => {
  into.replaceChildren(make('p', { class: 'muted', text: 'Searching the journals …' }));
  try {
    into.replaceChildren(...traceOf(await get('trace', parameters)));
  } catch (error) {
    into.replaceChildren(make('p', { text: `The message cannot be traced: ${error.message}.` }));
  }
};

at('trace-form').addEventListener('submit', event => {
  event.preventDefault();
  const first = at('trace-from').value.trim();
  if (at('trace-id').value) showTrace(at('trace'), { id: at('trace-id').value, from: first || null, hours: at('trace-hours').value });
});
