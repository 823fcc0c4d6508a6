let deadReport = null;

const ageOf = group => group.oldest === null ? 'unknown' : duration(group.oldest) === duration(group.newest) ? duration(group.oldest) : `${duration(group.newest)} to ${duration(group.oldest)}`;
const sourceOf = group => group.source === null ? '(unknown)' : plain(group.source) + (group.task === null ? '' : `, task ${plain(group.task)}`);
const field = (name, text) => text === null ? [] : [make('dt', { text: name }), make('dd', {}, make('bdi', { text: plain(text) }))];
// A row under another one, with the content of its button.
const under = (row, columns, content) => {
  const more = make('tr', { class: 'detail' }, make('td', { colspan: columns }, ...content));
  row.after(more);
  return more;
};
const toggling = (text, label, columns, read) => {
  let more = null;
  const toggle = button(text, async () => {
    toggle.setAttribute('aria-expanded', String(!more));
    if (more) { more.remove(); more = null; return; }
    more = under(toggle.closest('tr'), columns, [make('p', { class: 'muted', text: 'Reading …' })]);
    const mine = more, cell = more.firstChild;
    try {
      const content = await read();
      if (mine === more) cell.replaceChildren(...content);
    } catch (error) {
      cell.replaceChildren(make('p', { text: `It cannot be read: ${error.message}.` }));
    }
  }, { 'aria-expanded': 'false', 'aria-label': label });
  return toggle;
};

const letterOf = async (entity, line) => {
  const found = await get('letter', { entity, number: line.number });
  const history = make('div', { class: 'history' });
  const parts = [make('dl', {}, ...field('reason', found.group.reason), ...field('description', found.line.description),
    ...field('from', found.group.source), ...field('rejected by', found.group.task), ...field('enqueued', found.line.enqueued),
    ...field('session', found.line.session_id), ...field('bytes', number(found.line.bytes)))];
  if (found.is_wrapped) parts.push(make('p', { class: 'muted', text: 'The message is the body of the one that is there; it is shown as the task received it.' }));
  if (found.unreadable) parts.push(make('p', { text: `It cannot be read: ${plain(found.unreadable)}.` }));
  if (found.fields.length) {
    parts.push(make('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Fields and properties' }, make('table', { class: 'fields' },
      make('thead', {}, make('tr', {}, ...['Field', 'Type', 'Value'].map(text => make('th', { scope: 'col', text })))),
      make('tbody', {}, ...found.fields.map(each => make('tr', {}, make('th', { scope: 'row', text: plain(each.name) }), make('td', { text: each.type }), make('td', { class: 'id' }, make('bdi', { text: plain(each.value) }))))))));
  }
  parts.push(make('h3', { text: 'Body' }));
  parts.push(found.body === null ? make('p', { class: 'muted', text: found.unreadable ? 'unreadable' : 'Not shown: the app setting BUSWAY_DASHBOARD_BODIES is not on.' })
    : make('pre', { class: 'scroll', tabindex: 0, 'aria-label': 'Body', text: found.body.split('\n').map(plain).join('\n') + (found.body_is_cut ? '\n…' : '') }));
  parts.push(make('h3', { text: 'History' }), history);
  if (found.line.message_id === null || found.line.enqueued === null) history.append(make('p', { class: 'muted', text: 'The journals are searched by message id, and it has none.' }));
  else showTrace(history, { id: found.line.message_id, from: new Date(Date.parse(found.line.enqueued) - 3600000).toISOString().slice(0, 13), hours: 4 });
  return parts;
};

const lettersOf = async (entity, group) => {
  const found = await get('letters', { entity, reason: group.reason, source: group.source, task: group.task });
  const rows = found.letters.map(line => make('tr', {},
    make('td', { class: 'n', 'data-label': 'Number' }, line.number === null ? make('span', { text: '-' }) : toggling(String(line.number), `Message ${line.number}`, 4, () => letterOf(entity, line))),
    make('td', { 'data-label': 'Message id', class: 'id' }, make('bdi', { text: plain(line.message_id ?? '-') })),
    make('td', { 'data-label': 'Session', class: 'id' }, make('bdi', { text: plain(line.session_id ?? '-') })),
    make('td', { 'data-label': 'Enqueued', text: line.enqueued ?? 'unknown' })));
  return [make('table', { class: 'letters' },
    make('thead', {}, make('tr', {}, ...['Number', 'Message id', 'Session', 'Enqueued'].map((text, column) => make('th', { scope: 'col', class: column ? null : 'n', text })))),
    make('tbody', {}, ...rows)), ...(found.has_more ? [make('p', { class: 'muted', text: 'These are the first 100.' })] : [])];
};

const confirmResend = (entity, each) => {
  const dialog = at('resend'), order = { entity: entity.entity, group: each.group };
  let state = 'asking', sent = 0;
  const what = count(each.messages, 'message');
  at('resend-what').textContent = `${what} of ${entity.place}, ${plain(each.group.reason)}, from ${sourceOf(each.group)}.`;
  at('resend-done').replaceChildren();
  at('resend-fields').disabled = false;
  at('resend-to').value = '';
  at('destinations').replaceChildren(...deadReport.destinations.map(value => make('option', { value })));
  const go = at('resend-go'), stop = at('resend-stop');
  go.textContent = `Resend ${what}`;
  go.hidden = false;
  stop.textContent = 'Cancel';
  const say = (text, left = []) => at('resend-done').replaceChildren(make('p', { text }), ...list('Left', left.map(one =>
    `${number(one.messages)}: ${plain(one.reason)}${one.numbers.length ? ` (sequence number ${one.numbers.join(', ')}${one.messages > one.numbers.length ? ', …' : ''})` : ''}`)));
  const end = (text, left, isDone = false) => {
    state = 'ended';
    say(text, left);
    at('resend-fields').disabled = isDone;
    go.hidden = isDone;
    go.textContent = 'Try again';
    stop.textContent = 'Close';
  };
  const run = async () => {
    state = 'running';
    at('resend-fields').disabled = true;
    go.hidden = true;
    stop.textContent = 'Stop';
    stop.focus();
    say('Resending …');
    const body = JSON.stringify({ ...order, to: at('resend-to').value.trim() || null, ids: at('resend-ids').value, unclear: at('resend-unclear').value });
    try {
      for (;;) {
        const step = await ask(address.replace(/[^/]*$/, 'resend'), { method: 'POST', body, headers: { 'content-type': 'application/json' } }, at('resend-key').value || key);
        sent += step.sent + step.completed;
        const so = `${number(sent)} resent${step.gone ? `, ${number(step.gone)} taken by another receiver` : ''}`;
        if (step.error) return end(`${so}; then: ${plain(step.error)}.`, step.left);
        if (!step.waiting) return end(`${so}. ${step.left.length ? 'Some are left:' : 'Nothing of the group is left.'}`, step.left, !step.left.length);
        if (!(step.sent + step.completed + step.gone)) return end(`${so}; ${number(step.waiting)} wait, and the last request could not reach them. Try again in a minute.`, step.left);
        if (state === 'stopping') return end(`${so}, ${number(step.waiting)} wait. Stopped.`, step.left);
        say(`${so}, ${number(step.waiting)} wait …`, step.left);
      }
    } catch (error) {
      const hint = error.code === 401 || error.code === 403 ? ' Enter the key of the function busway-resend.' : '';
      return end(`${number(sent)} resent; then: ${plain(error.message)}.${hint}`);
    }
  };
  go.onclick = run;
  stop.onclick = () => {
    if (state !== 'running') { dialog.close(); return; }
    state = 'stopping';
    stop.textContent = 'Stopping …';
  };
  // Escape stops a resend, too, and never hides one that runs.
  dialog.oncancel = event => { event.preventDefault(); stop.onclick(); };
  dialog.onclose = () => { if (state === 'ended') readDead(); };
  dialog.showModal();
  stop.focus();
};

const groupOf = (entity, each) => make('tr', {},
  make('th', { scope: 'row' }, make('bdi', { text: plain(each.group.reason) })),
  make('td', { 'data-label': 'From' }, make('bdi', { text: sourceOf(each.group) })),
  make('td', { class: 'n', 'data-label': 'Messages', text: number(each.messages) }),
  make('td', { class: 'n', 'data-label': 'Age', text: ageOf(each) }),
  make('td', { class: 'actions' }, toggling('Show', `Show the messages with reason ${plain(each.group.reason)} of ${entity.place}`, 5, () => lettersOf(entity.entity, each.group)), ' ',
    deadReport.may_resend ? button('Resend …', () => confirmResend(entity, each), { 'aria-label': `Resend ${count(each.messages, 'message')} with reason ${plain(each.group.reason)} of ${entity.place}` }) : null));

const entityOf = entity => [
  make('h3', { text: `${entity.place}: ${number(entity.messages)}${entity.is_minimum ? ' or more' : ''}${entity.kind === 'rejects' ? ', rejected' : ''}` }),
  make('table', { class: 'groups', 'aria-label': entity.place },
    make('thead', {}, make('tr', {}, ...['Reason', 'From', 'Messages', 'Age', ''].map((text, column) => make(column < 4 ? 'th' : 'td', { scope: column < 4 ? 'col' : null, class: column === 2 || column === 3 ? 'n' : null, text })))),
    make('tbody', {}, ...entity.groups.map(each => groupOf(entity, each))))];

const readDead = async () => {
  const read = at('dead-read');
  read.disabled = true;
  write(at('dead-note'), 'Reading …');
  try {
    deadReport = await get('dead');
    const full = deadReport.entities.filter(each => each.messages).sort((one, other) => other.messages - one.messages);
    const unknown = deadReport.entities.filter(each => each.messages === null);
    const empty = deadReport.entities.length - full.length - unknown.length;
    at('dead').replaceChildren(...full.flatMap(entityOf), ...list('Unknown', unknown.map(each => `${each.place}: ${plain(each.unknown)}`)));
    const total = full.reduce((sum, each) => sum + each.messages, 0);
    write(at('dead-note'), `${count(total, 'message')} in ${full.length} of ${deadReport.entities.length} queues${empty ? `, ${empty} empty` : ''}, as of ${deadReport.time.slice(11, 19)} UTC.${deadReport.may_resend ? '' : ' Read-only.'}`);
  } catch (error) {
    write(at('dead-note'), `They cannot be read: ${error.message}.`);
  }
  read.textContent = 'Read again';
  read.disabled = false;
};
at('dead-read').addEventListener('click', readDead);
