"""The summary of a call, as JSON and as Markdown; failures come first."""
import json


def as_dict(results, about):
    failed = [result for result in results if result.failures]
    return {'verdict': 'failed' if failed else 'passed',
            'failed': [{'part': result.name, 'failures': result.failures} for result in failed],
            'skipped': [{'part': result.name, 'what': what, 'why': why}
                        for result in results for what, why in result.skipped],
            **about,
            'seconds': round(sum(result.seconds for result in results), 1),
            'parts': [{'name': result.name, 'title': result.title, 'state': result.state, 'seconds': result.seconds,
                       'limit_seconds': result.limit_seconds, 'file': result.file, 'failures': result.failures,
                       'notes': result.notes, 'figures': result.figures} for result in results]}


def shown(value):
    if isinstance(value, bool):
        return 'yes' if value else 'no'
    if isinstance(value, float):
        return f'{value:.4g}' if abs(value) < 1000 else f'{value:.0f}'
    return '' if value is None else str(value).replace('|', '/')


def table(rows):
    keys = list(dict.fromkeys(key for row in rows for key in row))
    lines = ['| ' + ' | '.join(keys) + ' |', '|' + '---|' * len(keys)]
    lines += ['| ' + ' | '.join(shown(row.get(key)) for key in keys) + ' |' for row in rows]
    return '\n'.join(lines)


def tables(rows):
    """One table for each set of rows with equal keys."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row), []).append(row)
    return '\n\n'.join(table(group) for group in groups.values())


def as_markdown(results, about):
    whole = as_dict(results, about)
    text = [f"# GPU tests: {whole['verdict']}"]
    for failed in whole['failed']:
        text += [f"- **{failed['part']}**: {failure}" for failure in failed['failures']]
    text.append('\n' + '\n'.join(f'- {key}: {value}' for key, value in about.items()))
    text.append('\n' + table([{'part': result.title, 'state': result.state, 'seconds': result.seconds,
                               'limit': result.limit_seconds, 'output': result.file} for result in results]))
    if whole['skipped']:
        text.append('\n## Not run, and why it cannot apply\n' + '\n'.join(
            f"- {one['part']}: {one['what']}: {one['why']}" for one in whole['skipped']))
    for result in results:
        if not result.figures and not result.notes:
            continue
        text.append(f'\n## {result.title}\n' + '\n'.join(f'- {note}' for note in result.notes))
        if result.figures:
            text.append('\n' + tables(result.figures))
    return '\n'.join(text) + '\n'


def write(results, about, folder):
    (folder / 'summary.json').write_text(json.dumps(as_dict(results, about), indent=1) + '\n')
    (folder / 'summary.md').write_text(as_markdown(results, about))
