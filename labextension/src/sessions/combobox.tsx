/** A text field with a list of suggestions, which the keyboard and screen readers can use (ARIA: combobox). */
import { caretDownIcon } from "@jupyterlab/ui-components";
import * as React from "react";

import type { IChoice } from "./model";

/** Time after the last key before suggestions for a path are loaded, in milliseconds. */
const TYPING_PAUSE_MS = 150;

/** Loads suggestions for what has been typed. */
export type Load = (typed: string) => Promise<readonly IChoice[]>;

interface ISuggestions {
  /** Known suggestions. */
  readonly choices?: readonly IChoice[] | undefined;
  /** Loads suggestions when the list opens. */
  readonly load?: Load | undefined;
  /** Whether the value is a path: suggestions are loaded while it is typed, and a chosen folder offers its own. */
  readonly isPath?: boolean | undefined;
}

export interface ITexts {
  readonly suggestions: string;
  readonly searching: string;
  readonly none: string;
}

interface IProps extends ISuggestions {
  readonly input: React.InputHTMLAttributes<HTMLInputElement> & { readonly id: string };
  readonly value: string;
  readonly change: (value: string) => void;
  readonly texts: ITexts;
}

/** Return the suggestions; null while they are loaded for the first time. */
function useChoices(
  { choices, load, isPath = false }: ISuggestions,
  value: string,
  isOpen: boolean,
): readonly IChoice[] | null {
  const [loaded, setLoaded] = React.useState<readonly IChoice[] | null>(null);
  const query = isPath ? value : "";
  React.useEffect(() => {
    if (load === undefined || !isOpen) {
      return undefined;
    }
    let isCurrent = true;
    const take = (found: readonly IChoice[]): void => {
      if (isCurrent) {
        setLoaded(found);
      }
    };
    const timer = setTimeout(() => {
      load(query).then(take, () => {
        take([]); // the value can be typed
      });
    }, TYPING_PAUSE_MS);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
    };
  }, [load, query, isOpen]);
  return load === undefined ? (choices ?? []) : loaded;
}

interface IListProps {
  readonly id: string;
  readonly shown: readonly IChoice[];
  readonly active: number;
  readonly label: string;
  readonly pick: (choice: IChoice) => void;
}

function Suggestions({ id, shown, active, label, pick }: IListProps): React.ReactElement {
  const node = React.useRef<HTMLUListElement>(null);
  React.useEffect(() => {
    const current = node.current?.children[active] ?? node.current;
    current?.scrollIntoView({ block: "nearest" });
  }, [active]);
  return (
    <ul ref={node} id={id} role="listbox" aria-label={label} className="jp-Slurm-suggestions">
      {shown.map((choice, index) => (
        <li
          key={choice.name}
          id={`${id}-${index}`}
          role="option"
          aria-selected={index === active}
          onMouseDown={(event) => {
            event.preventDefault(); // the field keeps the focus
          }}
          onClick={() => {
            pick(choice);
          }}
        >
          <span>{choice.name}</span>
          {choice.about !== "" && <span className="jp-Slurm-aside">{choice.about}</span>}
        </li>
      ))}
    </ul>
  );
}

/** Return the index of the active suggestion after an arrow key; null: another key. */
function moved(key: string, active: number, count: number): number | null {
  switch (key) {
    case "ArrowDown":
      return count === 0 ? 0 : (active + 1) % count; // the first one, as soon as it is loaded
    case "ArrowUp":
      return active <= 0 ? count - 1 : active - 1;
    default:
      return null;
  }
}

/** The field. What is typed need not be among the suggestions. */
export function Combobox(props: IProps): React.ReactElement {
  const { input, value, change, texts, isPath = false } = props;
  const [isOpen, setOpen] = React.useState(false);
  const [active, setActive] = React.useState(-1);
  const [isTyped, setTyped] = React.useState(false);
  const node = React.useRef<HTMLInputElement>(null);
  const choices = useChoices(props, value, isOpen);
  const typed = value.trim().toLowerCase();
  const shown = (choices ?? []).filter(({ name }) =>
    isPath
      ? name !== value && name.toLowerCase().includes(typed)
      : !isTyped || name.toLowerCase().includes(typed),
  );
  const list = `${input.id}-list`;
  const open = (isWanted: boolean): void => {
    setOpen(isWanted);
    setActive(-1);
    setTyped(false);
  };
  const pick = ({ name }: IChoice): void => {
    change(name);
    open(isPath); // a folder may have folders
  };
  const press = (event: React.KeyboardEvent): void => {
    const next = moved(event.key, isOpen ? active : -1, shown.length);
    const choice = isOpen ? shown[active] : undefined;
    if (next !== null) {
      setOpen(true);
      setActive(next);
    } else if (event.key === "Enter" && choice !== undefined) {
      pick(choice);
    } else if (event.key === "Escape" && isOpen) {
      event.stopPropagation();
      open(false);
    } else {
      return;
    }
    event.preventDefault();
  };
  return (
    <div className="jp-Slurm-combobox">
      <input
        {...input}
        ref={node}
        role="combobox"
        aria-autocomplete="list"
        aria-expanded={isOpen}
        aria-controls={isOpen && shown.length > 0 ? list : undefined}
        aria-activedescendant={isOpen && shown[active] ? `${list}-${active}` : undefined}
        value={value}
        onChange={(event) => {
          change(event.target.value);
          setOpen(true);
          setActive(-1);
          setTyped(true);
        }}
        onKeyDown={press}
        onBlur={() => {
          open(false);
        }}
      />
      <button
        type="button"
        tabIndex={-1}
        className="jp-Slurm-caret"
        aria-label={texts.suggestions}
        title={texts.suggestions}
        onMouseDown={(event) => {
          event.preventDefault(); // the list closes when the field loses the focus
          node.current?.focus();
          open(!isOpen);
        }}
      >
        <caretDownIcon.react tag="span" />
      </button>
      {isOpen && shown.length > 0 && (
        <Suggestions id={list} label={texts.suggestions} {...{ shown, active, pick }} />
      )}
      {isOpen && shown.length === 0 && !isTyped && (
        <div role="status" className="jp-Slurm-suggestions jp-Slurm-aside">
          {choices === null ? texts.searching : texts.none}
        </div>
      )}
    </div>
  );
}
