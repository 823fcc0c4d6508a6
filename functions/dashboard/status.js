const EVERY = 5000, HISTORY_EVERY = 60000, HOURS = 3, MANY = 20;
const TROUBLE = ['stopped', 'held', 'unknown', 'paused', 'running', 'idle'];
const rows = new Map();
const open = new Set();
let status = null, history = null, historyRead = 0, pair = null, all = false, readAt = 0;

const place = each => `${each.site}/${each.entity}`;
const clock = time => time ? time.slice(11, 19) : '';
const ago = time => duration(Math.max(0, (Date.parse(status.time) - Date.parse(time)) / 1000));
const waiting = task => task.backlog === null ? '?' : number(task.backlog) + (task.backlog_is_minimum ? '+' : '');
const lag = task => task.backlog === 0 ? '-' : task.lag === null ? '?' : (task.lag_is_minimum ? '≥ ' : '') + duration(task.lag);
const rate = task => task.rate === null ? '?' : task.rate ? task.rate.toFixed(1) : '-';
const rejected = task => task.last_hour === null ? '?' : number(task.last_hour.rejected);
const dead = task => {
  const known = task.dead_letters.filter(each => each.messages !== null);
  if (!task.dead_letters.length) return '-';
  if (!known.length) return '?';
  const more = task.dead_letters.some(each => each.messages === null || each.is_minimum);
  return number(known.reduce((sum, each) => sum + each.messages, 0)) + (more ? '+' : '');
};
const worst = tasks => TROUBLE.find(state => tasks.some(each => each.state === state)) ?? 'idle';
const lost = task => task.losses === null ? '?' : task.losses.messages ? number(task.losses.messages) : '-';
const needsAttention = task => task.state === 'stopped' || task.state === 'held' || Boolean(task.losses?.messages)
  || task.heartbeats.some(each => each.missed);
const clean = task => !(task.last_hour && task.last_hour.rejected) && !task.dead_letters.some(each => each.messages)
  && !task.obstacles.length && !needsAttention(task);
const quiet = task => task.state === 'idle' && task.backlog === 0 && clean(task);
const steady = task => task.state === 'running' && task.lag !== null && task.lag < 60 && clean(task);

const pairs = () => {
  const found = new Map();
  for (const task of status.tasks) {
    for (const site of new Set(task.targets.map(each => each.site))) {
      const name = JSON.stringify([task.source.site, site]);
      if (!found.has(name)) found.set(name, []);
      found.get(name).push(task);
    }
  }
  return found;
};

const drawMap = () => {
  const focused = document.activeElement?.closest('#map g')?.dataset.pair;
  const edges = pairs();
  const used = new Set(status.tasks.flatMap(task => [task.source.site, ...task.targets.map(each => each.site)]));
  // Sites stand where the configuration names them first.
  const names = [...new Set([...status.sites.map(each => each.site), ...used])].filter(each => used.has(each));
  const width = Math.min(Math.max(at('map').clientWidth, 320), 760), narrow = width < 600;
  const size = { wide: narrow ? 112 : 170, high: 54, letters: narrow ? 11 : 18 };
  const few = names.length <= 2;
  const height = few ? (narrow ? 300 : 190) : (narrow ? 320 : 240) + 40 * Math.max(0, names.length - 4);
  const spot = new Map(names.map((name, index) => {
    if (few && narrow) return [name, [width / 2, names.length === 1 ? height / 2 : index ? height - 40 : 40]];
    if (few) return [name, [names.length === 1 ? width / 2 : index ? width - 130 : 130, height / 2]];
    const angle = 2 * Math.PI * index / names.length - (narrow ? Math.PI / 2 : Math.PI);
    const across = width / 2 - (narrow ? size.wide / 2 + 2 : 130);
    return [name, [width / 2 + across * Math.cos(angle), height / 2 + (height / 2 - 45) * Math.sin(angle)]];
  }));
  const svg = make('svg:svg', { viewBox: `0 -28 ${width} ${height + 28}`, role: 'group', 'aria-label': 'Sites and the tasks between them' });
  for (const [name, tasks] of edges) {
    const [from, to] = JSON.parse(name);
    const [x1, y1] = spot.get(from), [x2, y2] = spot.get(to);
    const length = Math.hypot(x2 - x1, y2 - y1) || 1;
    const [dx, dy] = [(x2 - x1) / length, (y2 - y1) / length];
    const reach = Math.min(Math.abs(dx) > .01 ? (size.wide / 2 + 4) / Math.abs(dx) : 1e9, Math.abs(dy) > .01 ? (size.high / 2 + 4) / Math.abs(dy) : 1e9);
    const bend = 34;
    const start = [x1 + dx * reach - dy * 9, y1 + dy * reach + dx * 9], end = [x2 - dx * (reach + 9) - dy * 9, y2 - dy * (reach + 9) + dx * 9];
    const middle = [(x1 + x2) / 2 - dy * bend * 1.6, (y1 + y2) / 2 + dx * bend * 1.6];
    const self = from === to;
    const way = self ? `M ${x1 - 40} ${y1 - size.high / 2} C ${x1 - 60} ${y1 - 95}, ${x1 + 60} ${y1 - 95}, ${x1 + 40} ${y1 - size.high / 2 - 13}`
      : `M ${start} Q ${middle} ${end}`;
    const state = worst(tasks), speed = tasks.reduce((sum, each) => sum + (each.rate ?? 0), 0);
    const trouble = tasks.filter(each => each.state === 'held' || each.state === 'stopped').length;
    const label = `${tasks.length} task${tasks.length === 1 ? '' : 's'}, ${speed.toFixed(1)}/s`;
    const more = trouble ? `${trouble} need${trouble === 1 ? 's' : ''} attention` : state;
    const [hx, hy] = self ? [x1 + 40, y1 - size.high / 2 - 13] : end;
    const angle = self ? 90 : Math.atan2(end[1] - middle[1], end[0] - middle[0]) * 180 / Math.PI;
    const group = make('svg:g', {
      class: `is-${state}`, tabindex: 0, role: 'button', 'aria-pressed': pair === name, 'data-pair': name,
      'aria-label': `${from} to ${to}: ${label}, ${more}. Show only these tasks.`,
    },
    make('svg:path', { class: 'edge', d: way }),
    make('svg:path', { class: 'head', d: 'M 0 -6 L 12 0 L 0 6 z', transform: `translate(${hx} ${hy}) rotate(${angle})` }),
    make('svg:path', { class: 'hit', d: way }));
    const [lx, ly] = self ? [x1, y1 - 102] : [(start[0] + 2 * middle[0] + end[0]) / 4 - dy * 20, (start[1] + 2 * middle[1] + end[1]) / 4 + dx * 20];
    group.append(make('svg:text', { class: 'small', x: lx, y: ly - 2, text: label }), make('svg:text', { class: 'small', x: lx, y: ly + 14, text: more }));
    const choose = () => { pair = pair === name ? null : name; draw(); };
    group.addEventListener('click', choose);
    group.addEventListener('keydown', event => {
      if (event.key === 'Enter' || event.key === ' ') { event.preventDefault(); choose(); }
    });
    svg.append(group);
  }
  const down = new Map(status.sites.filter(each => each.reachable === false).map(each => [each.site, each.reason]));
  for (const [name, [x, y]] of spot) {
    const box = make('svg:rect', { class: down.has(name) ? 'down' : '', x: x - size.wide / 2, y: y - size.high / 2, width: size.wide, height: size.high, rx: 8 });
    const shown = name.length > size.letters ? `${name.slice(0, size.letters - 1)}…` : name;
    svg.append(box, make('svg:text', { x, y: y + (down.has(name) ? -3 : 5), text: shown }));
    if (down.has(name)) svg.append(make('svg:text', { class: 'small', x, y: y + 16, text: 'does not answer' }));
  }
  at('map').replaceChildren(svg);
  if (focused) [...svg.querySelectorAll('g')].find(each => each.dataset.pair === focused)?.focus();
};

const chart = (points, label, heights, kind, ranges = []) => {
  const last = Date.parse(history.last) / 60000, first = Date.parse(history.first) / 60000;
  const count = last - first + 1;
  const most = Math.max(...points.map(heights), 0);
  const svg = make('svg:svg', { class: 'chart', viewBox: `0 0 ${count} 60`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label(most) });
  svg.append(make('svg:line', { class: 'base', x1: 0, x2: count, y1: 59.5, y2: 59.5 }));
  for (const each of ranges) {
    const from = Math.max(Date.parse(each.after) / 60000 - first, 0), to = Date.parse(each.before) / 60000 - first;
    if (to >= 0) svg.append(make('svg:rect', { class: 'lost', x: from, y: 0, width: Math.max(to - from, 1), height: 60 }));
  }
  for (const point of points) {
    const x = Date.parse(point.time) / 60000 - first, value = heights(point);
    if (!value) continue;
    const high = Math.max(58 * value / most, 1.5);
    const bad = kind === 'rate' ? 58 * (point.rejected + point.retried) / most : 0;
    svg.append(make('svg:rect', { class: kind === 'rate' ? 'bar' : 'dot', x, y: 59 - high, width: .8, height: high }));
    if (bad) svg.append(make('svg:rect', { class: 'bad', x, y: 59 - bad, width: .8, height: bad }));
  }
  return make('figure', {}, make('figcaption', { text: label(most) }), svg);
};

const detail = task => {
  const parts = [];
  if (task.reason) parts.push(make('p', { class: 'reason', text: `${task.state}${task.since && !Number.isNaN(Date.parse(task.since)) ? ` for ${ago(task.since)}` : ''}: ${task.reason}` }));
  if (task.remedy) parts.push(make('p', { class: 'reason remedy', text: `What to do: ${task.remedy}.` }));
  parts.push(make('p', { class: 'reason', text: `${place(task.source)} → ${task.targets.map(place).join(', ')}${task.rejects ? `; rejects: ${place(task.rejects)}` : ''}` }));
  const facts = [
    task.in_hand === null ? null : `${number(task.in_hand)} in progress`,
    task.instances === null ? null : `${task.instances} instance${task.instances === 1 ? '' : 's'}${task.lanes > 1 ? `, ${task.lanes} lanes` : ''}`,
    task.last_batch ? `last batch ${ago(task.last_batch)} ago` : null,
    task.last_hour ? `last hour: ${number(task.last_hour.sent)} sent, ${number(task.last_hour.withheld)} withheld, ${number(task.last_hour.rejected)} rejected, ${number(task.last_hour.retried)} retried, ${number(task.last_hour.duplicates)} duplicates` : null,
    task.journal_records_lost ? `${number(task.journal_records_lost)} journal records lost` : null,
  ];
  parts.push(make('p', { class: 'reason', text: facts.filter(Boolean).join('; ') }));
  const lostRanges = task.losses?.ranges ?? [];
  const marks = lostRanges.length ? '; a red band: when lost messages were enqueued' : '';
  const points = history?.tasks[task.task];
  if (points) {
    parts.push(make('div', { class: 'charts' },
      chart(points, most => most ? `Messages per minute in the last ${HOURS} hours, up to ${number(most)}; rejected and retried ones red${marks}` : `No messages in the last ${HOURS} hours${marks}`,
        point => point.sent + point.withheld + point.rejected + point.retried, 'rate', lostRanges),
      chart(points.filter(point => point.lag !== null), most => `Highest lag of the messages sent, up to ${duration(most)}`, point => point.lag, 'lag')));
  } else {
    parts.push(make('p', { class: 'muted', text: history?.unknown.tasks ?? 'Reading the history …' }));
  }
  if (task.losses?.messages) {
    parts.push(make('h3', { text: `Lost: ${count(task.losses.messages, 'message')} left the source without a record` }));
    parts.push(make('ul', {}, ...lostRanges.map(each => make('li', { text: `${each.partition === null ? '' : `partition ${each.partition}, `}sequence number ${each.first === each.last ? each.first : `${each.first} to ${each.last}`}: enqueued between ${each.after} and ${each.before}, found ${each.found}` }))));
    if (!lostRanges.length) parts.push(make('p', { text: `Sequence numbers ${task.losses.sequence_numbers}` }));
  }
  parts.push(...list('Obstacles', task.obstacles.map(each => `${each.place}, ${each.kind} for ${ago(each.since)}: ${each.reason}`)));
  parts.push(...list('Heartbeats', task.heartbeats.map(each => `${place(each.target)}: ${each.missed ? `missed, ${each.reason}` : each.arrived ? `after ${duration(each.latency)}, ${ago(each.arrived)} ago` : 'none has arrived yet'}`)));
  parts.push(...list('Dead letters', task.dead_letters.map(each => each.messages === null ? `${place(each.place)}: unknown, ${each.unknown}` : `${place(each.place)}: ${number(each.messages)}${each.is_minimum ? ' or more' : ''}`)));
  parts.push(...list('Recent rejects', task.recent_rejects.map(each => [
    `${clock(each.time)} `, make('bdi', { class: 'id', text: each.message_id ?? '(no message id)' }), `: ${each.reason}`])));
  if (task.reconciliation) {
    const found = Object.entries(task.reconciliation.findings);
    parts.push(...list(`Reconciliation of ${task.reconciliation.day}`, found.length ? found.map(([name, count]) => `${number(count)} ${name}`) : ['no findings']));
  }
  parts.push(...list('Unknown', Object.entries(task.unknown).map(([name, reason]) => `${name}: ${reason}`)));
  return parts;
};

const LABELS = ['Task', 'State', 'Waiting', 'Lag', 'Per s', 'Dead letters', 'Rejected (1 h)', 'Lost (1 d)'];
const rowOf = task => {
  const toggle = make('button', { type: 'button', 'aria-expanded': 'false', text: task.task });
  const row = make('tr', { role: 'row' }, make('th', { scope: 'row', role: 'rowheader' }, toggle), ...LABELS.slice(1).map((label, index) => make('td', { role: 'cell', class: index ? 'n' : 'state', 'data-label': label })));
  const cell = make('td', { role: 'cell', colspan: LABELS.length });
  const more = make('tr', { role: 'row', class: 'detail', hidden: true }, cell);
  const note = make('td', { role: 'cell', colspan: LABELS.length, class: 'reason' });
  const why = make('tr', { role: 'row', class: 'detail why', hidden: true }, note);
  toggle.addEventListener('click', () => {
    if (!open.delete(task.task)) open.add(task.task);
    draw();
    readHistory();
  });
  return { row, why, note, more, toggle, cell };
};

const draw = () => {
  if (!status) return;
  drawMap();
  const text = at('find').value.trim().toLowerCase(), state = at('state').value;
  const mine = pair === null ? null : new Set(pairs().get(pair) ?? []);
  const isFiltered = Boolean(text || state || mine);
  const wanted = status.tasks.filter(task => (!text || [task.task, place(task.source), ...task.targets.map(place)].some(each => each.toLowerCase().includes(text)))
    && (!state || task.state === state) && (!mine || mine.has(task)))
    
    .sort((one, other) => needsAttention(other) - needsAttention(one) || TROUBLE.indexOf(one.state) - TROUBLE.indexOf(other.state) || (other.backlog ?? 0) - (one.backlog ?? 0) || (one.task < other.task ? -1 : 1));
  const many = !isFiltered && wanted.length > MANY;
  const still = many ? wanted.filter(task => quiet(task) && !open.has(task.task)) : [];
  // With hundreds of busy tasks, those that run as they should follow behind the button.
  if (many) still.push(...wanted.filter(task => !quiet(task)).slice(MANY).filter(task => steady(task) && !open.has(task.task)));
  const hidden = new Set(all ? [] : still);
  const order = [];
  for (const task of wanted) {
    if (hidden.has(task)) continue;
    if (!rows.has(task.task)) rows.set(task.task, rowOf(task));
    const { row, why, note, more, toggle, cell } = rows.get(task.task);
    const values = [task.state, waiting(task), lag(task), rate(task), dead(task), rejected(task), lost(task)];
    [...row.children].slice(1).forEach((each, index) => {
      write(each, values[index]);
      each.className = index ? `n${values[index] === '-' ? ' none' : ''}` : `state is-${task.state}`;
    });
    const isOpen = open.has(task.task);
    toggle.setAttribute('aria-expanded', String(isOpen));
    more.hidden = !isOpen;
    if (isOpen) cell.replaceChildren(...detail(task));
    why.hidden = isOpen || !task.remedy;
    write(note, task.remedy ? `${task.reason}. What to do: ${task.remedy}.` : '');
    order.push(row, why, more);
  }
  const body = at('rows');
  if (order.length !== body.children.length || order.some((each, index) => body.children[index] !== each)) {
    const focused = document.activeElement;
    body.replaceChildren(...order);
    if (body.contains(focused)) focused.focus({ preventScroll: true });
  }
  write(at('shown'), isFiltered ? `${wanted.length} of ${status.tasks.length} tasks${mine ? `, ${JSON.parse(pair).join(' to ')}` : ''}` : '');
  at('quiet').hidden = !still.length;
  write(at('quiet'), all ? 'Hide tasks with nothing to report' : `Show ${still.length} more tasks with nothing to report`);
  drawRest();
};

const drawRest = () => {
  const results = [status.reconciliation, status.last_hour].filter(Boolean);
  at('reconciliation').replaceChildren(...(status.reconciliation ? [] : [make('li', { text: status.unknown.reconciliation ?? 'unknown' })]), ...results.map(found => {
    const link = /^https?:\/\//.test(found.page) ? make('a', { href: found.page, rel: 'noreferrer', text: 'page' }) : make('span', { text: found.page });
    return make('li', {}, `${found === status.last_hour ? `Hour ${found.day.replace('T', ', ')}:00 UTC` : found.day}: ${found.verdict}. ${found.sentence} `, link);
  }));
  const alive = (status.instances ?? []).filter(each => each.alive), gone = (status.instances ?? []).length - alive.length;
  at('instances').replaceChildren(...(status.instances === null ? [make('li', { text: `unknown: ${status.unknown.instances}` })]
    : [...alive.map(each => make('li', { text: `${each.instance}${each.app ? `, ${each.app}` : ''}${each.region ? `, ${each.region}` : ''}${each.version ? `, version ${each.version}` : ''}: reported ${ago(each.reported)} ago, started ${ago(each.started)} ago` })),
      ...(gone ? [make('li', { text: `${gone} more reported in the last day and ${gone === 1 ? 'is' : 'are'} gone` })] : []),
      ...(alive.length ? [] : [make('li', { text: 'no instance reports now' })])]));
  at('notes').replaceChildren(...[...status.notes, ...status.sites.filter(each => each.reachable === false).map(each => `${each.site}: ${each.reason}`)].map(text => make('li', { text })));
};

const read = async () => {
  try {
    status = await get('json');
    readAt = Date.now();
    at('verdict').className = `verdict is-${status.health}`;
    write(at('sentence'), status.sentence);
    write(at('updated'), `as of ${clock(status.time)} UTC`);
    document.title = `${status.health === 'ok' ? '' : '● '}Busway: ${status.health}`;
    draw();
  } catch (error) {
    at('verdict').className = 'verdict is-unknown';
    write(at('sentence'), `The status cannot be read: ${error.message}.`);
    write(at('updated'), status ? `What follows is ${duration((Date.now() - readAt) / 1000)} old.` : '');
  }
};
const readHistory = async () => {
  if (!open.size || Date.now() - historyRead < HISTORY_EVERY) return;
  historyRead = Date.now();
  try {
    history = await get('history', { hours: HOURS });
  } catch (error) {
    history = { tasks: {}, unknown: { tasks: `The history cannot be read: ${error.message}.` } };
    historyRead = 0;
  }
  draw();
};
const turn = async () => {
  if (!document.hidden) { await read(); await readHistory(); }
  setTimeout(turn, EVERY);
};

for (const state of TROUBLE) at('state').append(make('option', { value: state, text: state }));
at('find').addEventListener('input', draw);
at('state').addEventListener('change', draw);
at('quiet').addEventListener('click', () => { all = !all; draw(); });
addEventListener('resize', draw);
document.addEventListener('visibilitychange', () => { if (!document.hidden) read(); });
turn();
