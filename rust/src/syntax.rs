//! What a chat template's source tells before it is run.

use minijinja::machinery::ast::{Expr, Stmt};

/// Whether the template takes a message's content as a list of parts, which it goes through in a
/// loop, or as a text.
///
/// The rule is vLLM's (`--chat-template-content-format auto`): a loop over `messages`, or over a
/// variable that was set from it, and somewhere a loop over the `content` of its variable.
pub fn wants_parts(template: &Stmt) -> bool {
    let mut found = Found::default();
    found.statement(template);
    let mut lists = vec!["messages"];
    let mut next = 0;
    while let Some(&list) = lists.get(next) {
        for (target, value) in &found.assignments {
            if !lists.contains(target) && leads_to(value, &|expr| is_variable(expr, list)) {
                lists.push(target);
            }
        }
        next += 1;
    }
    let messages = found.loops.iter().filter(|(_, over)| {
        lists.iter().any(|list| leads_to(over, &|expr| is_variable(expr, list)))
    });
    let messages: Vec<&str> = messages.filter_map(|(target, _)| *target).collect();
    found.loops.iter().any(|(_, over)| {
        messages.iter().any(|message| leads_to(over, &|expr| is_content(expr, message)))
    })
}

/// All assignments and loops of a template, wherever they stand.
#[derive(Default)]
struct Found<'a, 's> {
    assignments: Vec<(&'s str, &'a Expr<'s>)>,
    loops: Vec<(Option<&'s str>, &'a Expr<'s>)>,
}

impl<'a, 's> Found<'a, 's> {
    fn statement(&mut self, statement: &'a Stmt<'s>) {
        match statement {
            Stmt::Template(node) => self.all(&node.children),
            Stmt::ForLoop(node) => {
                self.loops.push((name(&node.target), &node.iter));
                self.all(&node.body);
                self.all(&node.else_body);
            }
            Stmt::IfCond(node) => {
                self.all(&node.true_body);
                self.all(&node.false_body);
            }
            Stmt::Set(node) => {
                if let Some(target) = name(&node.target) {
                    self.assignments.push((target, &node.expr));
                }
            }
            Stmt::WithBlock(node) => self.all(&node.body),
            Stmt::SetBlock(node) => self.all(&node.body),
            Stmt::AutoEscape(node) => self.all(&node.body),
            Stmt::FilterBlock(node) => self.all(&node.body),
            Stmt::Macro(node) => self.all(&node.body),
            Stmt::CallBlock(node) => self.all(&node.macro_decl.body),
            _ => {}
        }
    }

    fn all(&mut self, statements: &'a [Stmt<'s>]) {
        for statement in statements {
            self.statement(statement);
        }
    }
}

fn name<'s>(expr: &Expr<'s>) -> Option<&'s str> {
    match expr {
        Expr::Var(variable) => Some(variable.id),
        _ => None,
    }
}

fn is_variable(expr: &Expr, variable: &str) -> bool {
    name(expr) == Some(variable)
}

fn is_content(expr: &Expr, message: &str) -> bool {
    match expr {
        Expr::GetAttr(node) => node.name == "content" && is_variable(&node.expr, message),
        Expr::GetItem(node) => {
            let key = node.subscript_expr.as_const();
            is_variable(&node.expr, message) && key.is_some_and(|key| key.as_str() == Some("content"))
        }
        _ => false,
    }
}

/// Whether `expr` is what `wanted` looks for, or filtered, tested or a slice of it.
fn leads_to(expr: &Expr, wanted: &dyn Fn(&Expr) -> bool) -> bool {
    match expr {
        Expr::Filter(node) => node.expr.as_ref().is_some_and(|inner| leads_to(inner, wanted)),
        Expr::Test(node) => leads_to(&node.expr, wanted),
        Expr::Slice(node) => leads_to(&node.expr, wanted),
        _ => wanted(expr),
    }
}

/// The template without `{% generation %}` and `{% endgeneration %}`, which mark for training what
/// the model wrote and put out nothing; the white space that the tags eat goes all the same.
pub fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start + 2);
        out.push_str(before);
        rest = tag;
        let Some(end) = tag.find("%}") else { break };
        let inner = tag[..end].trim_matches(|c: char| matches!(c, '-' | '+'));
        let replacement = match inner.trim() {
            "generation" => " if true ",
            "endgeneration" => " endif ",
            _ => continue,
        };
        let marks = |c: char| matches!(c, '-' | '+');
        out.push_str(if tag.starts_with(marks) { &tag[..1] } else { "" });
        out.push_str(replacement);
        out.push_str(if tag[..end].ends_with(marks) { &tag[end - 1..end] } else { "" });
        rest = &tag[end..];
    }
    out.push_str(rest);
    out
}
