const key = new URLSearchParams(location.search).get('code');
const address = location.pathname.replace(/\/+$/, '');
const at = id => document.getElementById(id);

// Everything that is shown goes through these two: text is never parsed as HTML.
const make = (name, options = {}, ...children) => {
  const { text, onclick, ...attributes } = options;
  const element = name.startsWith('svg:')
    ? document.createElementNS('http://www.w3.org/2000/svg', name.slice(4)) : document.createElement(name);
  for (const [attribute, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(attribute, value === true ? '' : value);
  }
  if (text !== undefined && text !== null) element.textContent = text;
  if (onclick) element.addEventListener('click', onclick);
  element.append(...children.filter(each => each !== null));
  return element;
};
const write = (element, text) => { if (element.textContent !== text) element.textContent = text; };
const button = (text, onclick, options = {}) => make('button', { type: 'button', text, onclick, ...options });

// Names from messages: what changes the direction of text or cannot be seen is shown as its code.
const plain = text => text.replace(/[\p{Cc}\p{Cf}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu, each => `\\u{${each.codePointAt(0).toString(16)}}`);
const number = value => value.toLocaleString('en');
const count = (value, noun) => `${number(value)} ${noun}${value === 1 ? '' : 's'}`;
const duration = seconds => seconds < 10 ? `${seconds.toFixed(1)} s` : seconds < 60 ? `${Math.round(seconds)} s`
  : seconds < 3600 ? `${Math.round(seconds / 60)} min` : seconds < 86400 ? `${(seconds / 3600).toFixed(1)} h`
  : `${(seconds / 86400).toFixed(1)} d`;
const list = (title, items) => items.length ? [make('h3', { text: title }), make('ul', {}, ...items.map(each => make('li', {}, ...[each].flat())))] : [];

const ask = async (url, options, code = key) => {
  const headers = { ...(code ? { 'x-functions-key': code } : {}), ...(options.headers ?? {}) };
  const answer = await fetch(url, { ...options, headers, cache: 'no-store' });
  if (answer.ok) return answer.json();
  const said = await answer.json().catch(() => null);
  throw Object.assign(new Error(said?.error ?? `the app answers ${answer.status}`), { code: answer.status });
};
const get = (what, parameters = {}) => {
  const query = new URLSearchParams(Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined));
  return ask(`${address}/${what}${query.size ? `?${query}` : ''}`, {});
};
